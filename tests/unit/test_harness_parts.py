"""The harness's pure parts: where training pauses, what users read, how checkpoints reach the disk, who has the last word."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.schemas.config import ExperimentConfig
from tenuto.workers.connection.directives import AgentGone, Directive, DirectiveBox
from tenuto.workers.endings import ERROR_CHARACTERS_MAX
from tenuto.workers.errors import UserError, describe
from tenuto.workers.harness.schedule import Schedule

periods = st.none() | st.integers(1, 50)


@given(st.integers(1, 50), periods, periods, st.integers(1, 500), st.integers(0, 499))
def test_no_boundary_is_passed_over(
    log: int, checkpoint: int | None, validation: int | None, target: int, interrupted_at: int
) -> None:
    """Walking by `next_stop`, also after a resume anywhere, meets every multiple of every period up to the target."""
    schedule = Schedule(1, log, checkpoint, validation)
    position = min(interrupted_at, target - 1)
    due = {
        multiple
        for period in (log, checkpoint, validation)
        if period is not None
        for multiple in range(period, target + 1, period)
        if multiple > position
    } | {target}
    met = set()
    while position < target:
        stop = schedule.next_stop(position, target)
        assert position < stop <= target
        position = stop
        met.add(position)
    assert met == due


def test_a_path_and_a_module_that_are_missing(tmp_path: Path) -> None:
    missing = FileNotFoundError(2, "No such file or directory", "data.csv")
    assert describe(missing, tmp_path).splitlines()[0] == (
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv' "
        "(paths are those of the machine that trains; relative ones begin in the model directory)"
    )
    assert describe(ModuleNotFoundError("No module named 'x'"), tmp_path).splitlines()[0] == (
        "ModuleNotFoundError: No module named 'x' (install it where trials run, or put it into the model directory)"
    )


def test_lengths_in_epochs_and_periods_in_batches() -> None:
    config = ExperimentConfig.model_validate(
        {
            "name": "x",
            "entrypoint": "m:T",
            "searcher": {"name": "single", "metric": "m", "max_length": {"epochs": 3}},
            "min_checkpoint_period": {"batches": 7},
            "min_validation_period": {"epochs": 2},
        }
    )
    schedule = Schedule.of(config, epoch_batches=12)
    assert schedule == Schedule(unit_batches=12, log_batches=10, checkpoint_batches=7, validation_batches=24)
    assert schedule.target_batches(3) == 36
    assert [schedule.length(batches) for batches in (0, 11, 12, 35, 36)] == [0, 0, 1, 2, 3]


def test_a_wish_to_leave_from_inside_outlasts_the_agents_run() -> None:
    box = DirectiveBox(Directive("run", 4))
    seen = box.current
    box.put(Directive("run", 4))
    assert not box.differs(seen)
    box.leave("preempt")
    box.put(Directive("run", 8))
    assert box.current.action == "preempt"
    box.put(Directive("stop", 8))
    assert box.current.action == "stop", "what also leaves, but ends the trial, is obeyed"


def test_waiting_ends_with_a_change_or_without_an_agent() -> None:
    box = DirectiveBox(Directive("run", 4))
    seen = box.current
    thread = threading.Thread(target=box.put, args=(Directive("run", 8),))
    thread.start()
    assert box.wait_change(seen) == Directive("run", 8)
    thread.join()
    box.agent_gone("silent")
    with pytest.raises(AgentGone, match="silent"):
        box.wait_change(Directive("run", 8))


def raised_in(path: Path, source: str) -> BaseException:
    path.write_text(source)
    try:
        exec(compile(source, str(path), "exec"), {"UserError": UserError})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_error_is_told_from_the_users_side(tmp_path: Path) -> None:
    error = raised_in(tmp_path / "model.py", "import json\n\ndef f():\n    json.loads('{')\n\nf()\n")
    text = describe(error, tmp_path)
    assert text.splitlines()[0].startswith("model.py:4: JSONDecodeError: Expecting property name")
    assert "test_harness_parts" not in text, "frames before the user's explain nothing"
    assert "json" in text.splitlines()[-1].lower()


def test_an_error_while_the_users_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_on_import.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)  # as in a worker: `<frozen importlib>` is not a file there
    with pytest.raises(RuntimeError) as raised:
        importlib.import_module("raises_on_import")
    assert describe(raised.value, tmp_path) == (
        "raises_on_import.py:1: RuntimeError: no licence\n\nTraceback (most recent call last):\n"
        "  File \"raises_on_import.py\", line 1, in <module>\n    raise RuntimeError('no licence')\nRuntimeError: no licence"
    )


def test_what_the_platform_says_carries_the_users_line_but_no_traceback(tmp_path: Path) -> None:
    error = raised_in(tmp_path / "model.py", "\nraise UserError('there is no hyperparameter')\n")
    assert describe(error, tmp_path) == "model.py:2: there is no hyperparameter"


def test_an_error_of_a_loader_worker_is_found_in_its_text(tmp_path: Path) -> None:
    text = (
        "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
        '  File "/x/torch/utils/data/worker.py", line 349, in _worker_loop\n'
        f'  File "{tmp_path}/data.py", line 12, in __getitem__\n'
        "ValueError: bad image\n"
    )
    assert describe(ValueError(text), tmp_path).splitlines()[0] == "data.py:12: ValueError: bad image"


def test_a_huge_message_is_cut(tmp_path: Path) -> None:
    for error in (ValueError("x" * 50_000), UserError("y" * 50_000), RuntimeError("\n".join("z" * 100 for _ in range(1000)))):
        assert len(describe(error, tmp_path)) <= ERROR_CHARACTERS_MAX


def test_what_is_imported_in_a_users_process() -> None:
    """The harness itself knows no framework, bus or database; `import tenuto` costs nothing."""
    heavy = "{'torch', 'asyncpg', 'nats', 'faststream', 'fastapi', 'tenuto.services'} & set(sys.modules)"
    for module, found in (
        ("tenuto", heavy),
        ("tenuto.workers.harness.main", heavy),
        ("tenuto.pytorch", f"{heavy} - {{'torch'}}"),
    ):
        done = subprocess.run([sys.executable, "-c", f"import sys, {module}; sys.exit(str({found} or ''))"], capture_output=True)
        assert done.stderr.strip() == b"", module
