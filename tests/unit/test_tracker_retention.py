"""Checkpoints that the tracker keeps, and those that it deletes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted, AllocationReleased
from tenuto.schemas.events.search import TrialRequested, TrialStopped
from tenuto.schemas.reports import DamageReport
from tests.support.said import said
from tests.support.tracker_driver import SLOTS, WHY, Driver, checkpoint, types, validation


def kept(driver: Driver) -> list[str]:
    return [item.checkpoint_id for item in driver.state.experiments[1].trials["1-1"].checkpoints]


def test_policy_best_keeps_best_and_latest() -> None:
    driver = Driver()
    allocation = driver.grant()
    for batches, loss in ((10, 0.5), (20, 0.3), (30, 0.4), (40, math.nan), (50, 0.3)):
        driver.report(checkpoint(allocation, batches))
        driver.report(validation(allocation, batches, loss))
    assert kept(driver) == ["c20", "c50"]
    assert driver.report(checkpoint(allocation, 10)) == []  # a deleted one does not come back


def test_policy_best_respects_the_direction_of_the_metric() -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 100}, "smaller_is_better": False}
    driver = Driver(searcher=searcher)
    allocation = driver.grant()
    for batches, loss in ((10, 0.5), (20, 0.3), (30, 0.4)):
        driver.report(checkpoint(allocation, batches))
        driver.report(validation(allocation, batches, loss))
    assert kept(driver) == ["c10", "c30"]


@pytest.mark.parametrize(("smaller", "kept_ids"), [(True, ["c20", "c60"]), (False, ["c30", "c60"])])
def test_an_infinite_metric_makes_no_checkpoint_the_best(smaller: bool, kept_ids: list[str]) -> None:
    """The search drops such values; so the best finite one is what its best trial is known by."""
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 100}, "smaller_is_better": smaller}
    driver = Driver(searcher=searcher)
    allocation = driver.grant()
    values = (-math.inf, 0.3, 0.4, math.inf, math.nan, -math.inf if smaller else math.inf)
    for batches, loss in zip((10, 20, 30, 40, 50, 60), values, strict=True):
        driver.report(checkpoint(allocation, batches))
        driver.report(validation(allocation, batches, loss))
    assert kept(driver) == kept_ids


def test_best_n_and_latest_n_of_a_trial() -> None:
    driver = Driver(checkpoint_storage={"save_trial_best": 2, "save_trial_latest": 2})
    allocation = driver.grant()
    for batches, loss in ((10, 0.5), (20, 0.1), (30, 0.4), (40, 0.2), (50, 0.9), (60, 0.8)):
        driver.report(checkpoint(allocation, batches))
        driver.report(validation(allocation, batches, loss))
    assert kept(driver) == ["c20", "c40", "c50", "c60"]


def of_trial(number: int, report: Any) -> Any:
    return report.model_copy(
        update={
            "trial_id": f"1-{number}",
            "allocation_id": f"1-{number}-1",
            **({"checkpoint_id": f"{number}:{report.checkpoint_id}"} if hasattr(report, "checkpoint_id") else {}),
        }
    )


def start_trial(driver: Driver, number: int, source: str | None = None) -> None:
    name = f"1-{number}"
    driver.event(
        TrialRequested(
            experiment_id=1, trial_id=name, trial_number=number, hyperparameters={}, seed=1, target_length=100, reason=WHY,
            source_checkpoint_id=source,
        )
    )  # fmt: skip
    driver.event(
        AllocationGranted(pool="default", allocation_id=f"{name}-1", trial_id=name, experiment_id=1, slots=SLOTS, reason=WHY)
    )


def end_trial(driver: Driver, number: int) -> list[EventData]:
    name = f"1-{number}"
    driver.event(TrialStopped(experiment_id=1, trial_id=name, outcome="completed", reason=WHY))
    return driver.event(AllocationReleased(pool="default", allocation_id=f"{name}-1", trial_id=name, experiment_id=1, reason=WHY))


def left(driver: Driver) -> set[str]:
    found: set[str] = set()
    for event in driver.log:
        if event.type == "CheckpointSaved":
            found.add(event.data.checkpoint_id)  # type: ignore[attr-defined]
        if event.type == "CheckpointDeleted":
            assert event.data.checkpoint_id in found  # type: ignore[attr-defined]
            found.remove(event.data.checkpoint_id)  # type: ignore[attr-defined]
    return found


def test_best_n_of_the_experiment_over_live_and_finished_trials() -> None:
    driver = Driver(checkpoint_storage={"save_experiment_best": 2, "save_trial_best": 0, "save_trial_latest": 0})
    losses = {2: (0.5, 0.3), 3: (0.4, 0.9), 4: (0.2, 0.25)}
    for number, (first, second) in losses.items():
        start_trial(driver, number)
        for batches, loss in ((10, first), (20, second)):
            driver.report(of_trial(number, checkpoint("", batches)))
            driver.report(of_trial(number, validation("", batches, loss)))
        if number == 3:
            assert left(driver) == {"2:c20", "3:c10", "3:c20"}, "what may go on keeps its latest"
        end_trial(driver, number)
    assert left(driver) == {"4:c10", "4:c20"}
    assert [item.checkpoint_id for item in driver.state.experiments[1].ranked] == ["4:c10", "4:c20"]
    core = driver.core
    assert core.dump(core.load(core.dump(driver.state))) == core.dump(driver.state)


def test_what_another_trial_starts_from_is_kept_until_that_one_has_its_own() -> None:
    driver = Driver(checkpoint_policy="none")
    start_trial(driver, 2)
    driver.report(of_trial(2, checkpoint("", 10)))
    start_trial(driver, 3, source="2:c10")
    driver.report(of_trial(2, checkpoint("", 20)))
    driver.report(of_trial(2, checkpoint("", 30)))
    assert left(driver) == {"2:c10", "2:c30"}
    driver.report(of_trial(3, checkpoint("", 20)))
    driver.report(of_trial(2, checkpoint("", 40)))
    assert left(driver) == {"2:c40", "3:c20"}


def test_what_only_another_trial_needed_goes_when_that_one_has_its_own_or_is_over() -> None:
    for policy in ("none", "best"):
        for way in ("own", "over"):
            driver = Driver(checkpoint_policy=policy, checkpoint_storage={"save_trial_latest": 0, "save_trial_best": 0})
            start_trial(driver, 2)
            driver.report(of_trial(2, checkpoint("", 10)))
            for number in (3, 4):
                start_trial(driver, number, source="2:c10")
            end_trial(driver, 2)
            assert left(driver) == {"2:c10"}, "its own trial is over, and two others start from it"
            end_trial(driver, 3)
            assert left(driver) == {"2:c10"}
            decided = driver.report(of_trial(4, checkpoint("", 20))) if way == "own" else end_trial(driver, 4)
            [deleted] = [event for event in decided if event.TYPE == "CheckpointDeleted"]
            assert deleted.stream() == "trial/1-2"
            assert "only because trial 1-4 started from it" in said(deleted)
            assert left(driver) == ({"4:c20"} if way == "own" else set())
            core = driver.core
            assert core.dump(core.load(core.dump(driver.state))) == core.dump(driver.state)


def damage(allocation: str, name: str, resumed_from: str | None) -> DamageReport:
    return DamageReport(
        trial_id="1-1", allocation_id=allocation, checkpoint_id=name, reason="model is not there", resumed_from=resumed_from
    )


def test_a_damaged_checkpoint_is_recorded_and_pushes_out_no_good_one() -> None:
    driver = Driver(checkpoint_storage={"save_trial_latest": 2})
    first = driver.grant()
    for batches, loss in ((10, 0.5), (20, 0.4), (30, 0.1)):
        driver.report(checkpoint(first, batches))
        driver.report(validation(first, batches, loss))
    assert kept(driver) == ["c20", "c30"]
    driver.release(first)
    second = driver.grant()
    [event] = driver.report(damage(second, "c30", "c20"))
    assert event.to_json() == (
        b'{"trial_id":"1-1","allocation_id":"1-1-2","checkpoint_id":"c30","reason":"model is not there","resumed_from":"c20"}'
    )
    assert types(driver.report(damage(first, "c30", "c20"))) == ["ReportRefused"], "that one has no slots any more"
    driver.report(checkpoint(second, 40))
    assert kept(driver) == ["c20", "c30", "c40"], "the damaged one is not one of the two latest, and stays for repair"
    core = driver.core
    assert core.dump(core.load(core.dump(driver.state))) == core.dump(driver.state)
    driver.stop()
    *deleted, finished = driver.release(second)
    assert [item.checkpoint_id for item in deleted] == ["c30"]  # type: ignore[attr-defined]
    assert finished.checkpoint_id == "c40"  # type: ignore[attr-defined]


def test_a_trial_that_ends_at_a_damaged_checkpoint_names_the_sound_one() -> None:
    driver = Driver(checkpoint_policy="all")
    first = driver.grant()
    for batches in (10, 20):
        driver.report(checkpoint(first, batches))
    driver.report(damage(first, "c20", None))
    driver.stop()
    [finished] = driver.release(first)
    assert finished.checkpoint_id == "c10"  # type: ignore[attr-defined]


def _children(driver: Driver) -> list[int]:
    return [int(name[2:]) for name in sorted(driver.state.experiments[1].trials) if int(name[2:]) > 5]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 5), st.floats(0, 1) | st.just(math.nan)), max_size=30),
    st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.booleans(), st.lists(st.integers(0, 29), max_size=3),
    st.permutations(range(2, 9)),
)  # fmt: skip
def test_retention_keeps_exactly_what_the_policy_says(
    steps: list[tuple[int, float]],
    of_experiment: int,
    of_trials: int,
    latest: int,
    smaller: bool,
    sources: list[int],
    order: list[int],
) -> None:
    """After every trial is over: the union of the three rules, computed here from the whole history. `sources`: steps from whose
    checkpoints another trial starts, 6 and so on."""
    driver = Driver(
        checkpoint_storage={"save_experiment_best": of_experiment, "save_trial_best": of_trials, "save_trial_latest": latest},
        searcher={"name": "single", "metric": "loss", "max_length": {"batches": 100}, "smaller_is_better": smaller},
    )
    for number in range(2, 6):
        start_trial(driver, number)
    history: dict[int, list[tuple[str, float]]] = {}
    for index, (number, loss) in enumerate(steps):
        driver.report(of_trial(number, checkpoint("", index)))
        driver.report(of_trial(number, validation("", index, loss)))
        history.setdefault(number, []).append((f"{number}:c{index}", loss))
        assert f"{number}:c{index}" in left(driver), "a live trial's latest"
        for at, source in enumerate(sources):
            if source == index:
                start_trial(driver, 6 + at, source=f"{number}:c{index}")
    needed = {number: f"{steps[sources[number - 6]][0]}:c{sources[number - 6]}" for number in _children(driver)}
    for number in order:
        if number < 6 or number in needed:
            assert set(needed.values()) <= left(driver), "what another trial starts from"
            needed.pop(number, None)
            end_trial(driver, number)
    sign = 1 if smaller else -1
    expected: set[str] = set()
    measured: list[tuple[float, str]] = []
    for made in history.values():
        good = sorted(((sign * loss, index, name) for index, (name, loss) in enumerate(made) if not math.isnan(loss)))
        expected |= {name for _, _, name in good[:of_trials]}
        expected |= {name for name, _ in (made[-latest:] if latest else [])}
        measured += [(value, name) for value, _, name in good]
    values = sorted(value for value, _ in measured)[:of_experiment]
    found = left(driver)
    assert expected <= found
    by_name = {name: value for value, name in measured}
    extra = found - expected
    assert len(extra) <= of_experiment
    assert all(by_name[name] <= values[-1] for name in extra)
    assert sorted(by_name[name] for name in found if name in by_name)[:of_experiment] == values


def test_policy_all_keeps_all_and_none_keeps_what_resuming_needs() -> None:
    for policy, running, at_end in (("all", ["c10", "c20"], "c20"), ("none", ["c20"], None)):
        driver = Driver(checkpoint_policy=policy)
        allocation = driver.grant()
        for batches in (10, 20):
            driver.report(checkpoint(allocation, batches))
            driver.report(validation(allocation, batches))
        assert kept(driver) == running
        driver.stop()
        *deleted, finished = driver.release(allocation)
        assert types(deleted) == (["CheckpointDeleted"] if policy == "none" else [])
        assert finished.checkpoint_id == at_end  # type: ignore[attr-defined]
