"""Batch size and learning rate of a step, by number of slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tenuto.pytorch import LRScheduler, PyTorchTrial, PyTorchTrialContext
from tenuto.schemas.config import ExperimentConfig, Length
from tenuto.schemas.config.experiment import Distributed
from tenuto.workers.errors import UserError
from tenuto.workers.harness.batch_sizes import refuse_batch_rules
from tenuto.workers.harness.schedule import Schedule
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.distributed.batch_rules import BatchRules, LearningRateScaling, divided
from tenuto.workers.pytorch.distributed.shards import Shard
from tenuto.workers.pytorch.trainer import PyTorchTrainer

SLOTS_MOST = 4


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 9))
def test_parts_are_as_small_as_on_the_most_slots(total: int, one: int, other: int) -> None:
    slots, most = sorted((one, other))
    rules = BatchRules(1, most)
    seen: Counter[int] = Counter()
    counts = set()
    for rank in range(slots):
        share = Shard(rank, slots).cut(torch.arange(total), total)
        parts = divided(share, rules.parts(total, slots))
        counts.add(len(parts))
        for part in parts:
            if share.records:
                assert len(part.batch) <= -(-total // most)
            assert part.total == total
            seen.update(part.batch.tolist()[: part.records])
    assert seen == Counter(range(total)), "each record once"
    assert len(counts) == 1, "all slots compute equally often"
    assert slots < most or counts == {1}


def test_only_elastic_trials_that_keep_their_batch_are_cut() -> None:
    elastic = {"resources": {"slots_per_trial": {"min": 1, "max": 8}}}
    assert BatchRules.of({}, 4) == BatchRules(1, None)
    assert BatchRules.of({"resources": {"slots_per_trial": 4}}, 4) == BatchRules(1, None)
    assert BatchRules.of(elastic, 4) == BatchRules(1, 8)
    assert BatchRules.of({**elastic, "distributed": {"micro_batches": False}}, 4) == BatchRules(1, None)
    assert BatchRules.of({**elastic, "distributed": {"global_batch_size": "scale"}}, 4) == BatchRules(4, None)


def config_of(**changes: Any) -> ExperimentConfig:
    given = {"name": "x", "entrypoint": "m:C", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 4}}}
    return ExperimentConfig.model_validate({**given, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"distributed": {"learning_rate_scaling": "linear"}}, "needs global_batch_size: scale"),
        ({"distributed": {"learning_rate_warmup": {"epochs": 5}}}, "is for learning_rate_scaling"),
        (
            {"distributed": {"global_batch_size": "scale"}, "optimizations": {"aggregation_frequency": 2}},
            "does not go with optimizations.aggregation_frequency",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        config_of(**changes)


def test_what_was_recorded_before_is_written_back_as_it_was() -> None:
    written = Distributed(strategy="fsdp").model_dump(mode="json")
    assert written == {"strategy": "fsdp", "progress_seconds_max": 1800.0}


def scaling(slots: int, rule: str = "linear", warmup: int | None = None) -> LearningRateScaling:
    length = None if warmup is None else Length(batches=warmup)
    given = {"global_batch_size": "scale", "learning_rate_scaling": rule, "learning_rate_warmup": length}
    return LearningRateScaling(Distributed.model_validate(given), slots)


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_learning_rate_follows_the_number_of_slots(rule: str, factor: float) -> None:
    """The step is that of the scaled rate; what the scheduler and the user see is not scaled."""
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    rate = scaling(4, rule)
    rate.attach(optimizer, lambda: rate.factor(0, None))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for step in range(3):
        before = parameter.item()
        parameter.grad = torch.ones(1)
        optimizer.step()
        assert before - parameter.item() == pytest.approx(0.5 * 0.5**step * factor)
        assert optimizer.param_groups[0]["lr"] == 0.5 * 0.5**step
        schedule.step()


def test_a_warmup_rises_evenly_and_begins_again_where_slots_are_added() -> None:
    first = scaling(3, warmup=10)
    assert [first.factor(batches, None) for batches in (0, 5, 10, 50)] == [1.0, 2.0, 3.0, 3.0]
    same = scaling(3, warmup=10)
    same.restore(first.state(), 5, None)
    assert [same.factor(batches, None) for batches in (5, 10)] == [2.0, 3.0]
    more = scaling(6, warmup=10)
    more.restore(first.state(), 5, None)
    assert [more.factor(batches, None) for batches in (5, 10, 15, 20)] == [2.0, 4.0, 6.0, 6.0]
    fewer = scaling(1, warmup=10)
    fewer.restore(more.state(), 7, None)
    assert fewer.factor(7, None) == 1.0, "down at once"
    back = scaling(3, warmup=10)
    back.restore(fewer.state(), 20, None)
    assert back.factor(20, None) == 1.0
    assert back.factor(25, None) == 2.0


def test_a_scheduler_of_batches_steps_for_each_of_a_step() -> None:
    def rate(steps: list[int], frequency: int) -> float:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        item = LRScheduler(schedule, LRScheduler.StepMode.STEP_EVERY_BATCH, frequency)
        batches = 0
        for trained in steps:
            batches += trained
            optimizer.step()
            item.after_batch(batches, None, True, trained)
        return float(optimizer.param_groups[0]["lr"])

    assert rate([3, 3, 1], 1) == rate([1] * 7, 1)
    assert rate([3, 3, 1], 2) == rate([1] * 7, 2) == 0.5**3


@given(st.integers(1, 7), st.integers(1, 30), st.integers(1, 20), st.integers(1, 20), st.integers(1, 60))
def test_a_period_is_noticed_once_whatever_the_step(step: int, epoch: int, log: int, save: int, target: int) -> None:
    schedule = Schedule(1, log, save, None)
    position, logged, saved = 0, 0, 0
    while position < target:
        stop = schedule.next_stop(position, target, step, epoch)
        assert stop > position
        while position < stop:
            trained = min(step, stop - position, epoch - position % epoch)
            position += trained
            assert position <= stop, "a stop is the end of a step"
            last = trained
        logged += schedule.logs_at(position, last)
        saved += schedule.saves_at(position, last)
        if position < target and position % epoch:
            assert (position - max(0, position // epoch * epoch)) % step == 0
    assert logged == sum(bool(schedule.logs_at(at)) for at in range(1, target + 1)) or step > log
    assert saved == sum(bool(schedule.saves_at(at)) for at in range(1, target + 1)) or step > save


def info_of(**config: Any) -> TrialInfo:
    return TrialInfo(
        experiment_id=1, trial_id="1-1", trial_number=1, trial_seed=5, hyperparameters={}, config={"name": "x", **config}
    )


class Regression(PyTorchTrial):
    """9 records in a batch, 4 in the last of an epoch."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(3, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.lengths: list[int] = []

    def loader(self) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(22, 3, generator=generator)
        return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=9, shuffle=True)

    build_training_data_loader = build_validation_data_loader = loader

    def loss(self, batch: Any) -> torch.Tensor:
        self.lengths.append(len(batch[0]))
        return nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"loss": self.loss(batch)}


def trained(trial_class: type[PyTorchTrial], batches: int = 7, **config: Any) -> PyTorchTrainer:
    trainer = PyTorchTrainer(trial_class, info_of(**config))
    trainer.train(batches, lambda: False)
    return trainer


ELASTIC = {"resources": {"slots_per_trial": {"min": 1, "max": SLOTS_MOST}}}


def test_an_elastic_trial_alone_trains_in_parts_what_several_trained_at_once() -> None:
    parts, whole = trained(Regression, **ELASTIC), trained(Regression)
    assert isinstance(parts.trial, Regression)
    assert isinstance(whole.trial, Regression)
    assert max(parts.trial.lengths) == 3
    assert max(whole.trial.lengths) == 9
    for found, expected in zip(parts.trial.model.parameters(), whole.trial.model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert parts.take_metrics() == pytest.approx(whole.take_metrics())


def test_parts_and_accumulation_go_together() -> None:
    often = {"optimizations": {"aggregation_frequency": 3}}
    parts, whole = trained(Regression, **ELASTIC, **often), trained(Regression, **often)
    for found, expected in zip(parts.trial.model.parameters(), whole.trial.model.parameters(), strict=True):  # type: ignore[attr-defined]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


class LongEpochs(Regression):
    def loader(self) -> DataLoader[Any]:
        inputs = torch.randn(60, 3, generator=torch.Generator().manual_seed(3))
        return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=3, shuffle=True)

    build_training_data_loader = build_validation_data_loader = loader


def test_a_target_that_was_raised_before_it_was_reached_cuts_no_step() -> None:
    """A process that resumes in between does not know of it, and has to make the same steps."""

    def steps(*targets: tuple[int, int]) -> list[int]:
        """`targets`: until where to train, and the position at which another target is told."""
        trainer = PyTorchTrainer(LongEpochs, info_of())
        trainer.step_batches, trainer._shard = 4, Shard(0, 1)
        ends: list[int] = []
        for until, told_at in targets:
            while trainer.batches < min(until, told_at):
                stops = iter([False, True])
                trainer.train(until, lambda stops=stops: next(stops))  # type: ignore[misc]
                ends.append(trainer.batches)
        return ends

    assert steps((7, 7), (16, 16)) == [4, 7, 11, 15, 16], "where the search compares a step ends"
    assert steps((7, 4), (16, 16)) == steps((16, 16)) == [4, 8, 12, 16]


class OwnBackward(Regression):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.context.step_optimizer(self.optimizer)
        return loss


class OwnStep(Regression):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.context.backward(loss := self.loss(batch))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class TwoSteps(Regression):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        for _ in range(2):
            self.context.backward(loss := self.loss(batch))
            self.context.step_optimizer(self.optimizer)
        return loss


@pytest.mark.parametrize(
    ("trial_class", "sentence"),
    [
        (OwnBackward, r"call context\.backward"),
        (OwnStep, r"call context\.step_optimizer"),
        (TwoSteps, r"goes on with another loss after a step"),
    ],
)
def test_what_parts_would_change_is_refused_at_the_first_batch(trial_class: type[PyTorchTrial], sentence: str) -> None:
    """On any number of slots, so that it does not come as a surprise when the trial shrinks."""
    with pytest.raises(UserError, match=sentence):
        trained(trial_class, 1, **ELASTIC)
    unmixed = {**ELASTIC, "distributed": {"micro_batches": False}}
    assert trained(trial_class, 2, **unmixed).batches == 2
    assert trained(trial_class, 2).batches == 2


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.ones(3), torch.ones(1))] * 20)


class OfStream(Regression):
    def loader(self) -> DataLoader[Any]:
        return DataLoader(Endless(), batch_size=9)

    build_training_data_loader = build_validation_data_loader = loader


def test_a_warmup_in_epochs_needs_their_length() -> None:
    warmup = {"global_batch_size": "scale", "learning_rate_scaling": "linear", "learning_rate_warmup": {"epochs": 1}}
    with pytest.raises(UserError, match="give it in batches"):
        PyTorchTrainer(OfStream, info_of(distributed=warmup))
    assert trained(OfStream, 2, distributed={**warmup, "learning_rate_warmup": {"batches": 9}}).batches == 2


def test_a_trial_of_another_framework_is_told_that_these_rules_are_not_for_it() -> None:
    def assignment_of(**distributed: Any) -> Any:
        return SimpleNamespace(config=config_of(distributed=distributed))

    refuse_batch_rules(assignment_of(strategy="multi_worker_mirrored", global_batch_size="keep"))
    with pytest.raises(UserError, match="sync_batch_norm: true is for PyTorch trials"):
        refuse_batch_rules(assignment_of(sync_batch_norm=True))


def test_the_hyperparameter_of_the_whole_batch_is_none_where_batches_scale() -> None:
    context = PyTorchTrialContext(info_of(distributed={"global_batch_size": "scale"}), torch.device("cpu"))
    with pytest.raises(UserError, match="the batch of the DataLoader is that of one slot"):
        context.get_per_slot_batch_size()
