"""What is asked for each so many batches, and never comes, is said before a trial trains; what was not measured, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from tenuto.pytorch import LRScheduler, PyTorchCallback, PyTorchTrialContext
from tenuto.workers.core_api.validations import POSITIONS_MAX, Validations
from tenuto.workers.errors import UserError, WillRepeat
from tenuto.workers.harness.schedule import Schedule, ShortSchedule
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.support.exact_trials import BATCH, EPOCH_BATCHES, INFO, Small, never

MODES = LRScheduler.StepMode


def trainer_of(kind: type[Small], frequency: int = 1) -> PyTorchTrainer:
    config = {"optimizations": {"aggregation_frequency": frequency}}
    return PyTorchTrainer(kind, dataclasses.replace(INFO, config=config))


def weights_of(trainer: PyTorchTrainer) -> list[float]:
    return [float(value) for model in trainer.context._models for value in model.state_dict().values()]


def test_a_trial_whose_optimizer_would_never_step_is_refused_before_it_trains() -> None:
    trainer = trainer_of(Small, frequency=16)
    before = weights_of(trainer)
    trainer.train(15, never)
    assert weights_of(trainer) == before, "as it is"
    with pytest.raises(WillRepeat, match=r"of 16 batches .* full length is 15 batches, so no optimizer would"):
        trainer.check_length(15)
    trainer.check_length(16)


def test_batches_whose_gradients_no_step_uses_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    trainer_of(Small, frequency=4).check_length(12)
    assert capfd.readouterr().err == ""
    trainer_of(Small, frequency=4).check_length(13)
    assert (
        "the gradients of the last 1 batch are used by no step, as the trial's full length of 13 batches"
        in capfd.readouterr().err
    )


def test_a_validation_before_the_first_step_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_of(Small, frequency=4)
    trainer.train(3, never)
    trainer.validate()
    assert "the validation after 3 batches measures the model as it was made" in capfd.readouterr().err
    trainer.train(4, never)
    trainer.validate()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("mode", "frequency", "least"),
    [
        (MODES.STEP_EVERY_EPOCH, 2, 2 * EPOCH_BATCHES),
        (MODES.STEP_EVERY_BATCH, 50, 50),
        (MODES.STEP_EVERY_OPTIMIZER_STEP, 10, 20),
        (MODES.MANUAL_STEP, 1, 2),
    ],
)
def test_a_scheduler_that_never_steps_is_named(
    mode: LRScheduler.StepMode, frequency: int, least: int, capfd: pytest.CaptureFixture[str]
) -> None:
    class Scheduled(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(self.optimizer, 1), mode, frequency)

    trainer = trainer_of(Scheduled, frequency=2)
    trainer.check_length(least)
    assert capfd.readouterr().err == ""
    trainer.check_length(max(2, least - 2))
    said = capfd.readouterr().err
    assert ("StepLR never steps" in said) is (mode is not MODES.MANUAL_STEP)
    assert mode is MODES.MANUAL_STEP or f"LRScheduler.StepMode.{mode.name} and frequency {frequency}" in said


def test_an_epoch_that_never_ends_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    class AtEnd(PyTorchCallback):
        def on_epoch_end(self, epoch_idx: int) -> None: ...

    class Called(Small):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"end": AtEnd(), "none": PyTorchCallback()}

    trainer_of(Called).check_length(EPOCH_BATCHES)
    assert capfd.readouterr().err == ""
    trainer_of(Called).check_length(EPOCH_BATCHES - 1)
    assert capfd.readouterr().err.count("AtEnd.on_epoch_end is never called") == 1


def test_a_rehearsal_is_judged_by_the_full_length() -> None:
    full = Schedule(EPOCH_BATCHES, 10, None, None)
    assert full.full_batches(3) == 3 * EPOCH_BATCHES
    assert ShortSchedule.of_full(full, 3, 2, 1).full_batches(3) == 3 * EPOCH_BATCHES


class Once(IterableDataset[torch.Tensor]):
    """A stream that gives its records once."""

    def __init__(self, records: int) -> None:
        self.records = iter([torch.ones(1)] * records)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self.records


@pytest.mark.parametrize("records", [0, BATCH])
def test_validation_data_without_a_batch_is_called_that(records: int) -> None:
    """And not a missing metric, which evaluate_batch returns."""

    class Validated(Small):
        def build_validation_data_loader(self) -> DataLoader[Any]:
            return DataLoader(Once(records), batch_size=BATCH)

    trainer = PyTorchTrainer(Validated, INFO)
    if records:
        assert trainer.validate().keys() == {"loss"}
    with pytest.raises(UserError, match=r"the validation data gave no batch.* gives its records only once"):
        trainer.validate()


def test_what_a_second_validation_at_a_position_gives_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    validations = Validations("accuracy")
    first = {"accuracy": 0.5, "loss": float("nan")}
    assert validations.is_new(10, first)
    assert not validations.is_new(10, dict(first)), "as a resumed script reports it"
    assert capfd.readouterr().err == ""
    assert not validations.is_new(10, {"accuracy": 0.5, "bleu": 0.1, "loss": 0.2})
    said = capfd.readouterr().err
    assert "a validation at step 10 was reported before, and one position counts once: bleu, loss are dropped." in said
    assert validations.is_new(11, {"bleu": 0.1})
    assert "searcher.metric is 'accuracy', but report_validation was given bleu" in capfd.readouterr().err
    for steps in range(12, 12 + POSITIONS_MAX):
        validations.is_new(steps, {"accuracy": 1.0})
    assert validations.is_new(10, first), "the oldest are forgotten"
