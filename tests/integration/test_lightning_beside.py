"""The thread that writes Lightning's checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.support import real_parts
from tests.support.agent_stand_in import WorkerBench
from tests.support.reactions import stop_at

real_parts.package("lightning")
pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning"
MODULES = ("lightning", "sklearn.datasets", "torchdata.stateful_dataloader")
SHOWN = """
import threading
from lightning.pytorch.plugins.io import TorchCheckpointIO
_save = TorchCheckpointIO.save_checkpoint
def _shown(self, checkpoint, path, storage_options=None):
    print(f"written by {threading.current_thread().name}", flush=True)
    _save(self, checkpoint, path, storage_options)
TorchCheckpointIO.save_checkpoint = _shown
"""


@pytest.mark.parametrize(("asynchronous", "thread"), [(True, "tenuto-checkpoint"), (False, "MainThread")])
def test_it_is_written_beside_training_unless_the_configuration_says_otherwise(
    tmp_path: Path, asynchronous: bool, thread: str
) -> None:
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    config |= {
        "searcher": {**config["searcher"], "max_length": {"batches": 8}},
        "min_checkpoint_period": {"batches": 3},
        "checkpoint_storage": {"async_save": asynchronous},
    }
    (tmp_path / "context").mkdir()
    text = (EXAMPLE / "train.py").read_text()
    head, future, rest = text.partition("from __future__ import annotations\n")
    (tmp_path / "context" / "train.py").write_text(f"{head}{future}{SHOWN}{rest}" if future else SHOWN + text)
    hyperparameters = {"learning_rate": 0.01, "hidden": 16, "dropout": 0.2}
    with WorkerBench(tmp_path, tmp_path / "context", config, hyperparameters, modules=MODULES) as trial:
        agent = trial.agent(8)
        agent.react = stop_at(8)
        run = trial.start(agent, OMP_NUM_THREADS="1")
        assert run.wait() == 0, run.output()
        saved = [report.batches for report in agent.checkpoints()]
        assert saved == [3, 6, 8]
        written = [line for line in run.output().splitlines() if line.startswith("written by")]
        assert written == [f"written by {thread}"] * len(saved)


def test_lightnings_writer_of_its_own_thread_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

    from tenuto.workers.integrations import lightning_beside

    own, written = AsyncCheckpointIO(TorchCheckpointIO()), list[int]()
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(checkpoint_io=own))
    trainer.save_checkpoint = lambda path: trainer.strategy.checkpoint_io.save_checkpoint({"state_dict": {}}, path)
    monkeypatch.setattr(lightning_beside, "write_beside", lambda _, steps, state, write: (written.append(steps), write(state)))
    lightning_beside.save_beside(trainer, SimpleNamespace(checkpoint=None), 7, tmp_path / "lightning.ckpt")  # type: ignore[arg-type]
    assert written == [7]
    assert (tmp_path / "lightning.ckpt").exists()
    assert trainer.strategy.checkpoint_io is own
