"""The same error at the same place, twice in a row without progress, is not tried again; what may heal is, by `max_restarts`."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.schemas.reports import LogMatchReport
from tests.support.tracker_driver import Driver, checkpoint

OOM = (
    "model_def.py:31: OutOfMemoryError: CUDA out of memory. Tried to allocate {0}.00 MiB. GPU 0 has a total capacity of 79 GiB "
    "of which {0}.5 MiB is free. Process {0}7 has 2 GiB (use a smaller batch or model)\n\nTraceback {0}"
)
BARE = "The worker process exited with code 80, and told nothing of its end."


def starts(outcome: str, error: str, code: int, **config: Any) -> tuple[int, str]:
    """Starts of a trial that always ends like this, and its last error. `{0}` in the text is the number of the start."""
    driver = Driver(max_restarts=5, **config)
    while True:
        allocation = driver.grant()
        found = driver.exit(allocation, outcome, error.format(driver.allocations), code)
        driver.release(allocation)
        if found and found[0].final:  # type: ignore[attr-defined]
            return driver.allocations, found[0].error  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("outcome", "error", "code"),
    [
        ("failed", OOM, 1),
        ("failed", "model_def.py:9: OverflowError: math range error\n\nTraceback", 1),
        ("failed", "model_def.py:9: AssertionError\n", 1),
        ("failed", "train.py:3: FileNotFoundError: [Errno 2] No such file or directory: '/data/x-{0}' (paths are ...)", 1),
        ("failed", "model_def.py:9: ValueError: no (rank 1 of 2 on agent node-{0} failed first)", 1),
        ("failed", BARE, 80),
        ("failed", "The container ran out of memory: it used its limit of 4096 MiB.", 137),
        ("lost", "its worker process died by signal 6 (SIGABRT)", 134),
        ("lost", "its worker process died by signal 11 (SIGSEGV)", 139),
    ],
)
def test_the_same_error_twice_is_the_last_and_says_so(outcome: str, error: str, code: int) -> None:
    count, said = starts(outcome, error, code)
    assert count == 2
    first, _, _ = said.partition("\n")
    assert first.endswith("(the same error twice without progress, so the trial is not started again)")
    head = error.format(2).partition("\n")[0]
    assert first.removeprefix("the trial's workers were lost: ").startswith(head[:170])
    assert head in said
    assert len(first) < 300


@pytest.mark.parametrize(
    "error",
    [
        "model_def.py:{0}: ValueError: another line",
        "train.py:3: ConnectionResetError: [Errno 104] Connection reset by peer",
        "train.py:3: TimeoutError: the read operation timed out",
        "train.py:3: OSError: [Errno 28] No space left on device",
        "train.py:3: HTTPError: HTTP Error 503: Service Unavailable",
        "The trial ran out of memory: it used all that the node had left.",
        "model_def.py:9: AcceleratorError: CUDA error: uncorrectable ECC error encountered",  # on the same agent
    ],
)
def test_what_may_heal_is_tried_as_often_as_max_restarts_says(error: str) -> None:
    count, said = starts("failed", error, 1)
    assert count == 6
    assert "twice" not in said


@pytest.mark.parametrize("code", [135, 137, 143])
def test_signals_from_outside_are_borne_as_before(code: int) -> None:
    assert starts("lost", "its worker process died", code)[0] == 6


def test_progress_between_two_errors_starts_the_count_again() -> None:
    driver = Driver(max_restarts=1000)
    for number in range(1, 50):
        allocation = driver.grant()
        driver.report(checkpoint(allocation, number))
        [failed] = driver.exit(allocation, "failed", "model_def.py:9: ValueError: x")
        driver.release(allocation)
        assert not failed.final  # type: ignore[attr-defined]
    allocation = driver.grant()  # from the same checkpoint, at the same place
    [failed] = driver.exit(allocation, "failed", "model_def.py:9: ValueError: x")
    assert failed.final  # type: ignore[attr-defined]


def test_a_loss_between_two_errors_changes_nothing_and_another_error_does() -> None:
    driver = Driver(max_restarts=10)

    def ends(outcome: str, error: str) -> bool:
        allocation = driver.grant()
        found = driver.exit(allocation, outcome, error, 1)
        driver.release(allocation)
        return any(data.final for data in found)  # type: ignore[attr-defined]

    assert not ends("failed", "a.py:1: ValueError: x")
    assert not ends("failed", "a.py:2: ValueError: x")
    assert not ends("failed", "a.py:1: ValueError: x")
    assert not ends("lost", "agent a was lost: no heartbeat")
    assert ends("failed", "a.py:1: ValueError: x")


def test_what_a_log_policy_blames_on_an_agent_is_not_the_codes() -> None:
    driver = Driver(max_restarts=5)
    for number in range(1, 7):
        allocation = driver.grant()
        driver.report(
            LogMatchReport(
                trial_id="1-1", allocation_id=allocation, agent_id="a", pattern="out of memory", action="exclude_agent", line="x"
            )
        )
        [failed] = driver.exit(allocation, "failed", OOM.format(number))
        driver.release(allocation)
        assert failed.final == (number == 6)  # type: ignore[attr-defined]
