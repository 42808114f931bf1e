"""Early stopping by the callbacks of other libraries' trainers: the trial ends well, saved and validated where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto.schemas.reports import CheckpointReport, TrainingEndedReport, ValidationReport
from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.reactions import ends_of, stop_ended

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
HUGGINGFACE = ("transformers.trainer", "transformers.models.bert.modeling_bert", "accelerate")
LIGHTNING = ("lightning.pytorch", "sklearn.datasets", "torchdata.stateful_dataloader")
EPOCH_STEPS = 45


@contextmanager
def example(
    directory: Path, name: str, changes: dict[str, str], values: dict[str, Any], modules: Sequence[str]
) -> Iterator[WorkerBench]:
    """A trial of an example whose script has changed."""
    config = yaml.safe_load((EXAMPLES / name / "config.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": 200}
    for period in ("min_checkpoint_period", "min_validation_period"):
        config.pop(period, None)
    text = (EXAMPLES / name / "train.py").read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    (directory / "context").mkdir()
    (directory / "context" / "train.py").write_text(text)
    with WorkerBench(directory, directory / "context", config, values, modules=tuple(modules)) as bench:
        yield bench


def stopped_at(trial: WorkerBench) -> tuple[AgentStandIn, str]:
    """Lets the trial stop itself; returns its agent and what it printed. The last three reports are of one position."""
    agent = trial.agent(200)
    agent.react = stop_ended
    run = trial.start(agent, **QUIET)
    assert run.wait() == 0, run.output()
    saved, validated, ended = [item for item in agent.reports if item.kind != "progress"][-3:]
    assert isinstance(saved, CheckpointReport)
    assert isinstance(validated, ValidationReport)
    assert isinstance(ended, TrainingEndedReport)
    assert saved.batches == validated.batches == ended.batches
    assert agent.endings == ["finished"]
    return agent, run.output()


OWN = """
import transformers

class Own(transformers.TrainerCallback):
    def on_log(self, args, state, control, **_):
        if state.global_step == 5:
            control.should_training_stop = True

"""
PATIENT = "__import__('transformers').EarlyStoppingCallback(2, 100.0)"
HUGGINGFACE_STOPS: dict[str, tuple[dict[str, str], tuple[int, int, str]]] = {
    "EarlyStoppingCallback": (
        {
            'save_strategy="no",': 'save_strategy="no", eval_strategy="steps", eval_steps=2, metric_for_best_model="eval_loss",',
            "compute_metrics=accuracy,": f"compute_metrics=accuracy, callbacks=[{PATIENT}],",
        },
        (6, 6, "Hugging Face's EarlyStoppingCallback: eval_loss did not improve in 2 evaluations"),
    ),
    "own": (
        {
            "def main(": OWN + "\ndef main(",
            'save_strategy="no",': 'save_strategy="no", logging_steps=5,',
            "compute_metrics=accuracy,": "compute_metrics=accuracy, callbacks=[Own()],",
        },
        (5, 5, "a callback of Hugging Face's Trainer set should_training_stop"),
    ),
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", list(HUGGINGFACE_STOPS))
def test_hugging_faces_trainer(tmp_path: Path, how: str) -> None:
    real_parts.package("transformers")
    changes, expected = HUGGINGFACE_STOPS[how]
    values = {"learning_rate": 0.002, "hidden_size": 8}
    with example(tmp_path, "huggingface", changes, values, HUGGINGFACE) as trial:
        agent, said = stopped_at(trial)
        assert ends_of(agent.reports) == [expected]
        assert f"the training ended by itself at batch {expected[0]}" in said
        if how == "EarlyStoppingCallback":
            assert [report.batches for report in agent.validations()] == [2, 4, 6]


CALLBACKS = (
    "max_epochs=-1, callbacks=[lightning.pytorch.callbacks.EarlyStopping('validation_loss', patience=1, min_delta=100.0)],"
)
LIGHTNING_STOPS: dict[str, tuple[dict[str, str], int, str]] = {
    "epoch end": ({"max_epochs=-1,": CALLBACKS}, 2 * EPOCH_STEPS, "Lightning's EarlyStopping: "),
    "mid-epoch": ({"max_epochs=-1,": f"{CALLBACKS} val_check_interval=10,"}, 20, "Lightning's EarlyStopping: "),
    "module": (
        {'self.log("loss", loss)': 'self.log("loss", loss)\n        self.trainer.should_stop = batch_idx == 6'},
        7,
        "trainer.should_stop was set",
    ),
    "without a validation": (
        {
            "max_epochs=-1,": "max_epochs=-1, check_val_every_n_epoch=100,",
            "def configure_optimizers": "def on_train_epoch_end(self):\n        self.trainer.should_stop = True\n\n"
            "    def configure_optimizers",
        },
        EPOCH_STEPS,
        "trainer.should_stop was set",
    ),
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", list(LIGHTNING_STOPS))
def test_lightnings_trainer(tmp_path: Path, how: str) -> None:
    real_parts.package("lightning")
    changes, batches, reason = LIGHTNING_STOPS[how]
    values = {"learning_rate": 0.01, "hidden": 16, "dropout": 0.2}
    with example(tmp_path, "lightning", changes, values, LIGHTNING) as trial:
        agent, _ = stopped_at(trial)
        [(at, _, said)] = ends_of(agent.reports)
        assert at == batches
        assert said.startswith(reason)
