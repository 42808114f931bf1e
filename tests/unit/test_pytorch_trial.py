"""The Trial API: what a trial is given, what it must do, what its checkpoints hold."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tenuto.pytorch
from tenuto.pytorch import LRScheduler, PyTorchTrial, PyTorchTrialContext, Reducer, load_model_state
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch import state
from tenuto.workers.pytorch.metrics import EvaluationMetrics, TrainingMetrics, batch_length
from tenuto.workers.pytorch.trainer import PyTorchTrainer

INFO = TrialInfo(
    experiment_id=3,
    trial_id="3-2",
    trial_number=2,
    trial_seed=77,
    hyperparameters={"lr": 0.1, "optimizer": {"momentum": 0.9}, "global_batch_size": 8},
    config={"name": "x"},
)


class Linear(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)))
        self.frozen = self.model[1]
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
        self.positions: list[tuple[int, int, bool, bool]] = []

    def loader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.arange(40.0).reshape(10, 4), torch.arange(10) % 2), batch_size=4, shuffle=True)

    build_training_data_loader = build_validation_data_loader = loader

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.positions.append((epoch_idx, batch_idx, self.context.is_epoch_start(), self.context.is_epoch_end()))
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss

    def evaluate_batch(self, batch: Any) -> Mapping[str, Any]:
        assert not torch.is_grad_enabled()
        assert not self.model.training
        return {"accuracy": (self.model(batch[0]).argmax(1) == batch[1]).float().mean()}


def always(_: Any = None) -> bool:
    return False


def test_epochs_and_batches_count_from_the_trials_begin() -> None:
    trainer = PyTorchTrainer(Linear, INFO)
    trainer.train(4, always)
    trial = trainer.trial
    assert isinstance(trial, Linear)
    assert trial.positions == [(0, 0, True, False), (0, 1, False, False), (0, 2, False, True), (1, 3, True, False)]
    assert trainer.epoch_batches == 3


def test_validation_restores_each_modules_mode() -> None:
    trainer = PyTorchTrainer(Linear, INFO)
    trial = trainer.trial
    assert isinstance(trial, Linear)
    trial.frozen.eval()  # a user may freeze a part for good
    trainer.validate()
    assert trial.model.training
    assert not trial.frozen.training


def test_two_trainers_with_one_seed_are_one(tmp_path: Path) -> None:
    weights = []
    for trial_seed in (77, 77, 78):
        trainer = PyTorchTrainer(Linear, TrialInfo(**{**vars(INFO), "trial_seed": trial_seed}))
        trainer.train(5, always)
        weights.append(torch.cat([parameter.flatten() for parameter in trainer.trial.model.parameters()]))  # type: ignore[attr-defined]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_hyperparameters_by_name_and_path() -> None:
    context = PyTorchTrialContext(INFO, torch.device("cpu"))
    assert context.get_hparam("optimizer.momentum") == 0.9
    assert context.get_hparam("optimizer") == {"momentum": 0.9}
    assert context.get_global_batch_size() == 8
    with pytest.raises(
        UserError, match=r"no hyperparameter 'momentum'; the experiment has: global_batch_size, lr, optimizer.momentum"
    ):
        context.get_hparam("momentum")


class NoWrap(Linear):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.model = nn.Linear(4, 2)


class NoEvaluation(Linear):
    evaluate_batch = PyTorchTrial.evaluate_batch


class NoMetricsDict(Linear):
    def evaluate_batch(self, batch: Any) -> Any:
        return self.model(batch[0]).sum()


class VectorMetric(Linear):
    def evaluate_batch(self, batch: Any) -> Any:
        return {"logits": self.model(batch[0])}


class NoLoss(Linear):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        return None


@pytest.mark.parametrize(
    ("trial_class", "expected"),
    [
        (NoWrap, "NoWrap.__init__ must wrap a model and an optimizer"),
        (NoEvaluation, "NoEvaluation needs evaluate_batch or evaluate_full_dataset"),
        (NoMetricsDict, "evaluate_batch returned a tensor of shape .*; it must return a dict"),
        (VectorMetric, r"evaluate_batch returned the metric 'logits' as a tensor of shape \(4, 2\)"),
        (NoLoss, r"train_batch returned nothing \(None\); return the loss"),
    ],
)
def test_mistakes_are_told_in_one_sentence(trial_class: type[PyTorchTrial], expected: str) -> None:
    with pytest.raises(UserError, match=expected):  # noqa: PT012 - where it is noticed depends on the mistake
        trainer = PyTorchTrainer(trial_class, INFO)
        trainer.train(1, always)
        trainer.validate()


class FullDataset(Linear):
    def evaluate_full_dataset(self, data_loader: DataLoader[Any]) -> Mapping[str, Any]:
        return {"records": sum(len(batch[1]) for batch in data_loader)}


def test_the_whole_set_can_be_evaluated_at_once() -> None:
    assert PyTorchTrainer(FullDataset, INFO).validate() == {"records": 10.0}


def test_a_checkpoint_of_another_shape_is_named(tmp_path: Path) -> None:
    class Two(Linear):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(self.optimizer, 1))

    PyTorchTrainer(Linear, INFO).save(tmp_path)
    with pytest.raises(UserError, match="holds 0 schedulers, but __init__ wrapped 1"):
        PyTorchTrainer(Two, INFO).load(tmp_path)


def test_averages_weigh_a_short_last_batch_as_what_it_is() -> None:
    metrics = EvaluationMetrics({"worst": Reducer.MAX, "count": Reducer.SUM, "own": lambda values: values[0]})
    metrics.add({"accuracy": 1.0, "worst": 1.0, "count": 4, "own": 9}, 4)
    metrics.add({"accuracy": torch.tensor([0.0]), "worst": 3.0, "count": 1, "own": 8}, 1)
    assert metrics.reduce() == {"accuracy": 0.8, "worst": 3.0, "count": 5.0, "own": 9.0}


def test_training_metrics_are_averaged_between_reports() -> None:
    metrics = TrainingMetrics()
    metrics.add(torch.tensor(1.0))
    metrics.add({"loss": 3.0, "other": True})
    assert metrics.take() == {"loss": 2.0, "other": 1.0}
    assert metrics.take() == {}


def test_batch_lengths() -> None:
    assert batch_length({"x": [torch.zeros(3, 2)], "y": torch.zeros(5)}) == 3
    assert batch_length((torch.zeros(4), torch.zeros(4))) == 4
    assert batch_length(["a", "b"]) == 2
    assert batch_length(torch.tensor(1)) == 1


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_schedulers_step_when_they_are_due() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)

    def steps(mode: LRScheduler.StepMode, frequency: int = 1) -> int:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        wrapped = LRScheduler(scheduler, mode, frequency)
        for batches in range(1, 13):
            wrapped.after_batch(batches, epoch_batches=3)
        return int(scheduler.last_epoch)

    assert steps(LRScheduler.StepMode.STEP_EVERY_EPOCH) == 4
    assert steps(LRScheduler.StepMode.STEP_EVERY_EPOCH, 2) == 2
    assert steps(LRScheduler.StepMode.STEP_EVERY_BATCH, 5) == 2
    assert steps(LRScheduler.StepMode.MANUAL_STEP) == 0


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 3)
        self.output = nn.Linear(3, 6)
        self.output.weight = self.embedding.weight
        self.register_buffer("whole", torch.arange(6.0))
        self.register_buffer("first", self.get_buffer("whole")[:3])
        self.register_buffer("transposed", torch.arange(6.0).reshape(2, 3).t())
        self.register_buffer("empty", torch.zeros(0))

    def get_extra_state(self) -> Any:
        return {"note": "any object"}

    def set_extra_state(self, value: Any) -> None:
        assert value == {"note": "any object"}


def test_shared_and_odd_tensors_survive(tmp_path: Path) -> None:
    model = Tied()
    others = state.save_model(model.state_dict(), tmp_path / "model.safetensors")
    assert others == {"_extra_state": {"note": "any object"}}
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert "output.weight" not in stored, "tied weights are stored once"
    loaded = load_model_state(tmp_path)
    fresh = Tied()
    fresh.load_state_dict(loaded | others)
    for name, value in model.state_dict().items():
        if name != "_extra_state":
            assert torch.equal(fresh.state_dict()[name], value), name


def test_state_that_cannot_be_saved_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="keep only picklable values in state_dict"):
        state.save_state({"trial": {"f": lambda: 1}}, tmp_path / "state.pt")


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond a page: what a full disk looks like to whom writes. Of the whole process, so not a fixture:
    what pytest prints between a fixture and its test may go to a file that is longer already."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("save", [state.save_model, state.save_state])
def test_a_disk_that_takes_no_more_is_an_os_error(tmp_path: Path, save: Callable[[dict[str, Any], Path], Any]) -> None:
    with pytest.raises(OSError, match="File too large"), small_files():
        save({"w": torch.zeros(100_000)}, tmp_path / "file")


def test_what_users_import() -> None:
    assert tenuto.pytorch.PyTorchTrial is PyTorchTrial
    assert tenuto.pytorch.DataLoader is DataLoader
