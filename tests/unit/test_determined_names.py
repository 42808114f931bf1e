"""The package `determined` that workers find: each name of Determined's API works or is refused with a sentence, as the table in
docs/from-determined.md says, and an installed package goes first."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.schemas.config.determined_fields import CARRIED_VARIABLE
from tenuto.workers.determined import core, facts, pytorch
from tenuto.workers.determined.distributed import DistributedContext
from tenuto.workers.determined.naming import INSTEAD
from tenuto.workers.determined.pytorch.context import PyTorchTrialContext
from tenuto.workers.determined.pytorch.schedulers import SteppedAsThere
from tenuto.workers.determined.pytorch.units import NEVER
from tenuto.workers.errors import UserError
from tenuto.workers.harness.determined_names import UnknownName
from tenuto.workers.harness.trainer import TrialInfo
from tests.support.determined import API, MODULES

ROOT = Path(__file__).parents[2]
CLASSES: dict[str, Any] = {
    "PyTorchTrial": pytorch.PyTorchTrial,
    "PyTorchTrialContext": PyTorchTrialContext,
    "PyTorchCallback": pytorch.PyTorchCallback,
    "MetricReducer": pytorch.MetricReducer,
    "Reducer": pytorch.Reducer,
    "LRScheduler": pytorch.LRScheduler,
    "LRScheduler.StepMode": pytorch.LRScheduler.StepMode,
    "Checkpoints": core.CheckpointContext,
    "Operation": core.SearcherOperation,
}
INFO = TrialInfo(
    3, "3-1", 1, 7, {"global_batch_size": 10}, {"environment": {"variables": {CARRIED_VARIABLE: '{"data": {"a": 1}}'}}}
)


def rows() -> dict[str, str]:
    """Word of the table (works, differs, refused) by name."""
    found = {}
    for line in (ROOT / "docs/from-determined.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[1] in ("works", "differs", "refused"):
            found |= dict.fromkeys(re.findall(r"`([\w.]+)`", cells[0]), cells[1])
    return found


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test before these may have run a trial in this process."""
    monkeypatch.setattr(facts, "_current", None)


def context() -> PyTorchTrialContext:
    return PyTorchTrialContext(INFO, torch.device("cpu"))


def test_each_name_works_or_is_refused_as_the_table_says() -> None:
    from tenuto.workers.determined import keras  # seconds, which each process that reads this module would take

    known, given = rows(), context()
    for kind, names in API.items():
        if kind not in CLASSES:
            continue
        for name in names.split():
            word = known.get(f"{kind}.{name}", "works")
            if kind == "PyTorchTrialContext":
                if word == "refused" and name != "from_config":
                    with pytest.raises(UnknownName, match=f"context has no '{name}'"):
                        getattr(given, name)
                elif name != "from_config":
                    assert hasattr(given, name), name
            else:
                assert name == "__init__" or hasattr(CLASSES[kind], name), (kind, name)
    given.set_stop_requested(True)
    assert given.get_stop_requested()
    given.set_stop_requested(False)
    assert not given.get_stop_requested()
    for name in MODULES["tenuto.pytorch"].split():
        word = known[f"pytorch.{name}"]
        if word == "refused" and name != "samplers":
            with pytest.raises(UnknownName, match=f"has no '{name}': "):
                getattr(pytorch, name)
        else:
            assert hasattr(pytorch, name)
    for name in MODULES["tenuto.keras"].split():
        if known[f"keras.{name}"] == "refused":
            with pytest.raises(UnknownName, match=f"has no '{name}': "):
                getattr(keras, name)
        else:
            assert hasattr(keras, name)
    of_keras = keras.TFKerasTrialContext(INFO)
    for name in API["KerasTrialContext"].split():
        if known.get(f"TFKerasTrialContext.{name}") == "refused" and name != "from_config":
            with pytest.raises(UnknownName, match=f"context has no '{name}'"):
                getattr(of_keras, name)
        else:
            assert name == "from_config" or hasattr(of_keras, name), name
    assert (of_keras.get_trial_id(), of_keras.get_data_config(), of_keras.wrap_model(5)) == (3_000_001, {"a": 1}, 5)
    with pytest.raises(UnknownName, match=r"give pytorch\.DataLoader shuffle=True"):
        _ = pytorch.samplers.RepeatSampler


def test_the_table_speaks_of_names_that_there_are() -> None:
    owners = {
        **CLASSES,
        "pytorch": pytorch,
        "core": core,
        "TrainContext": core.TrainContext,
        "SearcherContext": core.SearcherContext,
    }
    owners |= {"CheckpointContext": core.CheckpointContext, "PreemptContext": core.PreemptContext, "Context": core.Context}
    owners |= {"SearcherOperation": core.SearcherOperation}
    for name, word in rows().items():
        owner, _dot, rest = name.rpartition(".")
        if owner in owners and word != "refused":
            assert hasattr(owners[owner], rest), name
        if owner == "det" and word == "refused":
            assert rest in INSTEAD, name
    public = {name for name, _ in inspect.getmembers(core.TrainContext, inspect.isfunction) if not name.startswith("_")}
    mine = {"held_at", "send_held", "report_early_exit"}
    assert {f"TrainContext.{name}" for name in public - mine} <= set(rows())


def test_the_context_has_determineds_numbers() -> None:
    given = context()
    assert (given.get_trial_id(), given.get_experiment_id(), given.get_initial_batch()) == (3_000_001, 3, 0)
    assert (given.get_global_batch_size(), given.get_per_slot_batch_size(), given.distributed.size) == (10, 10, 1)
    assert given.get_data_config() == {"a": 1}
    assert given.get_experiment_config()["environment"] == {"environment_variables": []}
    given._info = TrialInfo(3, "3-1", 1, 7, {"global_batch_size": 2}, {})
    given._hparams = {"global_batch_size": 1}
    assert given.get_global_batch_size() == 1


def test_schedulers_step_where_determineds_step() -> None:
    mode = pytorch.LRScheduler.StepMode
    steps: list[int] = []

    class Counting:
        def step(self) -> None:
            steps.append(at)

        def state_dict(self) -> dict[str, Any]:
            return {}

    def stepped(step_mode: Any, frequency: int, aggregation: int) -> list[int]:
        nonlocal at
        steps.clear()
        scheduler = SteppedAsThere(Counting(), step_mode, frequency, aggregation)
        for at in range(1, 13):
            scheduler.after_batch(at, 5, at % aggregation == 0)
        return list(steps)

    at = 0
    assert stepped(mode.STEP_EVERY_BATCH, 3, 1) == [3, 6, 9, 12]
    assert stepped(mode.STEP_EVERY_BATCH, 1, 4) == [4] * 4 + [8] * 4 + [12] * 4
    assert stepped(mode.STEP_EVERY_OPTIMIZER_STEP, 4, 2) == [4, 8, 12]
    assert stepped(mode.STEP_EVERY_EPOCH, 1, 1) == [5, 10]
    assert stepped(mode.STEP_EVERY_EPOCH, 1, 4) == [4, 8, 12]  # the last optimizer step in each epoch
    assert stepped(mode.STEP_EVERY_EPOCH, 2, 1) == [10]
    assert stepped(mode.MANUAL_STEP, 1, 1) == []


def test_each_batch_counts_once() -> None:
    values = [1.0, 1.0, 4.0]
    assert [reducer(values) for reducer in pytorch.Reducer] == [2.0, 6.0, 4.0, 1.0]


def test_ranks_tell_each_other() -> None:
    told = [(0, 0, "a"), (0, 1, "b"), (1, 0, "c")]
    second = DistributedContext(rank=1, size=3, local_rank=1, local_size=2, cross_size=2, gathers=lambda value: told)
    assert (second.gather("b"), second.allgather("b")) == (None, told)
    assert second.allgather_local("b") == ["a", "b"]
    assert (second.broadcast_local(), second.gather_local("b"), second.get_num_agents()) == ("a", None, 2)
    alone = DistributedContext()
    assert (alone.broadcast(5), alone.gather(5), alone.allgather_local(5)) == (5, [5], [5])


def test_lengths_in_code() -> None:
    assert pytorch.Batch(3).batches("x", None) == 3
    assert pytorch.Epoch(3).batches("x", 5) == 15
    assert pytorch.Batch(NEVER).batches("x", None) is None
    for unit, epoch, why in ((pytorch.Epoch(1), None, "has no length"), (pytorch.Batch([1, 2]), 5, "a list of positions")):
        with pytest.raises(UserError, match=why):
            unit.batches("max_length", epoch)


def test_what_is_carried_may_be_anything() -> None:
    for text in ("", "[]", "{", '{"data": 5}'):
        assert facts.script_decides({"environment": {"variables": {CARRIED_VARIABLE: text}}}) is False


PROGRAM = """
import sys
import tenuto.determined
import determined as det
from determined import pytorch
from determined.pytorch import PyTorchTrial
import determined.core
assert det.pytorch is pytorch is sys.modules["tenuto.workers.determined.pytorch"], det
assert PyTorchTrial.__module__ == "tenuto.workers.determined.pytorch.trial"
assert det.get_cluster_info() is None
for name in ("determined.experimental", "determined.pytorch.deepspeed", "determined.nothing"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        print(error)
"""


def test_the_package_is_found_under_its_name(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Tenuto stands in for Determined, and has no determined.experimental: use tenuto.client, the client of a cluster.",
        "Tenuto stands in for Determined, and has no determined.pytorch.deepspeed: there are no trials of DeepSpeed here; "
        "distributed.strategy: fsdp divides a PyTorch model.",
        "Tenuto stands in for Determined, and has no determined.nothing: docs/from-determined.md lists what there is.",
    ]
    (tmp_path / "determined").mkdir()
    (tmp_path / "determined/__init__.py").write_text("own = True\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tenuto.determined, determined; assert determined.own"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
