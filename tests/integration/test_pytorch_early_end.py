"""PyTorch trials that ask to be stopped: they end there, validated and saved, and all ranks at the same batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.reports import CheckpointReport, TrainingEndedReport, ValidationReport
from tenuto.workers.core_api.local_record import read_lines
from tests.support.agent_stand_in import WorkerBench
from tests.support.gang_bench import GangBench
from tests.support.reactions import ends_of, stop_ended

MODEL = """
import torch
from torch.utils.data import DataLoader

from tenuto import pytorch


class Patience(pytorch.PyTorchCallback):
    def __init__(self, context):
        self.context, self.left = context, 2

    def on_validation_end(self, metrics):
        self.left -= 1
        if self.left == 0:
            self.context.set_stop_requested(True, reason="loss did not fall\\nin two validations")

    def state_dict(self):
        return {"left": self.left}

    def load_state_dict(self, state):
        self.left = state["left"]


class Stops(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context, self.how = context, context.get_hparam("how")
        self.model = context.wrap_model(torch.nn.Linear(4, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def build_training_data_loader(self):
        return DataLoader(torch.randn(40, 4), batch_size=4)

    def build_validation_data_loader(self):
        return DataLoader(torch.randn(8, 4), batch_size=4)

    def build_callbacks(self):
        return {"patience": Patience(self.context)} if self.how == "validation" else {}

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if batch_idx == 6 and self.how in ("batch", f"rank {self.context.rank}"):
            self.context.set_stop_requested(True)
        assert not (batch_idx == 7 and self.how == "batch"), "trained further"
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.model(batch).square().mean()}
"""


def config(**changes: Any) -> dict[str, Any]:
    return {
        "name": "stops",
        "entrypoint": "model_def:Stops",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
        "min_validation_period": {"batches": 10},
        **changes,
    }


@pytest.fixture
def context(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    place.mkdir()
    (place / "model_def.py").write_text(MODEL)
    return place


@pytest.mark.parametrize(
    ("how", "batches", "reason"),
    [("batch", 7, "context.set_stop_requested"), ("validation", 20, "loss did not fall in two validations")],
)
def test_a_trial_ends_where_it_asks_to(tmp_path: Path, context: Path, how: str, batches: int, reason: str) -> None:
    with WorkerBench(tmp_path, context, config(), {"how": how}) as bench:
        agent = bench.agent(100)
        agent.react = stop_ended
        run = bench.start(agent)
        assert run.wait() == 0, run.output()
        saved, validated, ended = agent.reports[-3:]
        assert isinstance(saved, CheckpointReport)
        assert isinstance(validated, ValidationReport)
        assert isinstance(ended, TrainingEndedReport)
        assert saved.batches == validated.batches == batches
        assert ends_of(agent.reports) == [(batches, batches, reason)]
        assert agent.endings == ["finished"]
        assert f"the training ended by itself at batch {batches} ({reason})" in run.output()


def test_what_is_asked_after_the_end_is_not_trained_and_a_preempted_one_leaves(tmp_path: Path, context: Path) -> None:
    with WorkerBench(tmp_path, context, config(), {"how": "batch"}) as bench:
        agent = bench.agent(100)
        run = bench.start(agent)
        agent.wait_for(lambda: bool(ends_of(agent.reports)))
        agent.direct("run", 200)
        agent.direct("preempt")
        assert run.wait() == 80, run.output()
        assert [report.batches for report in agent.validations()] == [report.batches for report in agent.checkpoints()] == [7]


@pytest.mark.timeout(300)
def test_one_rank_that_asks_ends_all_at_the_same_batch(tmp_path: Path, context: Path) -> None:
    with GangBench(tmp_path / "gang", context, config(), {"how": "rank 1"}) as bench:
        agent, [run] = bench.gang(2, 100)
        agent.react = stop_ended
        assert run.wait() == 0, run.output()
        # Rank 0 may have begun the next batch, and then all train it.
        [(batches, length, by)] = ends_of(agent.reports)
        assert batches == length
        assert (batches in (7, 8), by) == (True, "context.set_stop_requested")
        assert [report.batches for report in agent.validations()] == [batches]


@pytest.mark.timeout(300)
def test_ranks_that_ask_at_a_validation_end_there(tmp_path: Path, context: Path) -> None:
    with GangBench(tmp_path / "gang", context, config(), {"how": "validation"}) as bench:
        agent, [run] = bench.gang(2, 100)
        agent.react = stop_ended
        assert run.wait() == 0, run.output()
        assert [(batches, length) for batches, length, _ in ends_of(agent.reports)] == [(20, 20)]


def test_without_a_cluster_the_record_says_it(tmp_path: Path, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tenuto

    monkeypatch.syspath_prepend(str(context))
    import model_def

    ran = tenuto.run_local(model_def.Stops, config(), hyperparameters={"how": "batch"}, directory=tmp_path / "record", quiet=True)
    assert ran.complete
    found = [line.body for line in read_lines(tmp_path / "record") if isinstance(line.body, TrainingEndedReport)]
    assert [(body.batches, body.said) for body in found] == [(7, "context.set_stop_requested")]
    assert [item["batches"] for item in ran.validations] == [7]
