"""Trains a PyTorchTrial, position by position (see `Trainer` for its promise)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tenuto.schemas.config.experiment import Reproducibility
from tenuto.workers.errors import UserError
from tenuto.workers.harness import signatures
from tenuto.workers.harness.trainer import Trainer, TrialInfo
from tenuto.workers.pytorch import checking, checkpoint, data, options, per_slot, periods, seeds, user_attributes
from tenuto.workers.pytorch.batch_words import words
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.distributed.batch_rules import divided
from tenuto.workers.pytorch.distributed.shards import Shard, Sharded
from tenuto.workers.pytorch.exactness import Exactness, prepare_torch
from tenuto.workers.pytorch.lengths import NO_BATCH, Lengths
from tenuto.workers.pytorch.metrics import EvaluationMetrics, TrainingMetrics, to_numbers
from tenuto.workers.pytorch.orders import Orders
from tenuto.workers.pytorch.own_state import generators_of
from tenuto.workers.pytorch.snapshots import Buffers
from tenuto.workers.pytorch.structure import Structure
from tenuto.workers.pytorch.training_data import TrainingData
from tenuto.workers.pytorch.trial import PyTorchTrial
from tenuto.workers.user_state.generators import aside, own_generators


class PyTorchTrainer(Trainer):
    has_snapshots = True
    has_batch_rules = True

    _started = _ended = False
    """True once callbacks were told of the start, and of the end. Set also for a trainer whose trial could not be made."""

    def __init__(self, trial_class: type[PyTorchTrial], info: TrialInfo) -> None:
        """Builds the user's trial. Raises errors of the user's code."""
        self._prepare(info, trial_class.deterministic)
        signatures.check_class(trial_class, PyTorchTrial)
        self._adopt(trial_class(self.context), info)

    def _prepare(self, info: TrialInfo, deterministic: bool = True) -> None:
        """Everything before the user's trial is made: the device, the context, the generators."""
        self._seed = info.trial_seed
        exact = deterministic and Reproducibility.model_validate(info.config.get("reproducibility") or {}).exact
        gang = info.gang
        device = prepare_torch(info.local_slots, exact, 0 if gang is None else gang.local_rank)
        if gang is not None:
            seeds.use_one_device()
        self._exactness = Exactness(exact, device, _say)
        self._exactness.watch()
        self.context = self._make_context(info, device)
        self._ranks = self.context._ranks
        self._shard = None if self._ranks is None else Shard(self._ranks.rank, self._ranks.size)
        if self._shard is None and isinstance((info.config.get("resources") or {}).get("slots_per_trial"), Mapping):
            self._shard = Shard(0, 1)  # it may have had ranks, or have some later: records are drawn as they draw them
        self.step_batches = self.context._rules.step_batches
        seeds.seed_everything(seeds.derive_seed(self._seed, "trial"))

    def _make_context(self, info: TrialInfo, device: torch.device) -> PyTorchTrialContext:
        return PyTorchTrialContext(info, device)

    def _make_callbacks(self) -> dict[str, PyTorchCallback]:
        return checking.checked_callbacks(self.trial)

    def _adopt(self, trial: PyTorchTrial, info: TrialInfo) -> None:
        """Makes a trainer of the user's trial, which was made with the context."""
        self.trial = trial
        checking.check_trial(self.trial, self.context)
        self._train_batch = checking.training_step(self.trial)
        self._evaluate_batch = checking.evaluation_step(self.trial)
        given = options.given(self.context._optimizers)
        with seeds.isolated_randomness(seeds.derive_seed(self._seed, "loaders")):
            self._callbacks = self._make_callbacks()
            build = self.trial.build_training_data_loader
            training = data.check_loader(build(), build.__name__, build)
            self._training = per_slot.with_whole_batches(training, self.context, build)
            build = self.trial.build_validation_data_loader
            self._validation = data.check_loader(build(), build.__name__, build)
        self.context._epoch_batches = checking.epoch_batches(self.trial, self.context, self._training)
        seeds.seed_everything(seeds.rank_seed(self._seed, self.context.rank))
        if self._ranks is not None:
            with torch.no_grad():
                self._ranks.broadcast(
                    [item for model in self.context._models for item in (*model.parameters(), *model.buffers())]
                )
        self._data = TrainingData(self._training, seeds.derive_seed(self._seed, "training data"), self._exactness.note_lost)
        seed = seeds.derive_seed(self._seed, "validation")
        self._validation_orders = None if data.is_stream(self._validation) else Orders(self._validation, seed)
        self._lengths = Lengths(trial, _say)
        self._batches_ahead: Iterator[Any] | None = None
        self._until = 0
        """Position at which a step ends although it has fewer batches than others."""
        self._metrics = TrainingMetrics(self.trial.train_batch)
        self._parts = checkpoint.Parts(
            self.context,
            self.trial,
            self._callbacks,
            self._metrics,
            self._exactness,
            given,
            user_attributes.attributes_of(self.context, self.trial, self._callbacks),
            Structure(self.context._models, self.context._optimizers),
            info.hyperparameters,
        )
        self._generators = own_generators(self.trial, self._callbacks, self._training.dataset, skip=self.context._models)
        self._generators += generators_of(self.context._models, self._generators)
        self._buffers = Buffers()
        for sentence in (*checking.doubts(trial), checking.elsewhere(trial, self.context), self.context._scaling.sentence()):
            self._lead_says(sentence)
        self.copies_on_disk = self.context._shards is not None
        copies = self.context.rank == 0 and not self.copies_on_disk and checking.copies_on_the_way(info.config)
        self._prepare_in = self.context._optimizations.aggregation_frequency if copies else 0  # in batches
        self._collected: checkpoint.Collected | None = None

    @property
    def epoch_batches(self) -> int | None:
        return self.context._epoch_batches

    @property
    def batches(self) -> int:  # type: ignore[override]
        return self.context._batches

    def check_length(self, full_batches: int) -> None:
        for sentence in periods.doubts(self.context, self._callbacks, full_batches):
            self._lead_says(sentence)

    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        context, epoch_batches, callbacks = self.context, self.epoch_batches, list(self._callbacks.values())
        self._look_ahead(until_batches)
        while context._batches < until_batches and not interrupted():
            if not self._started:
                self._started = True
                self._call(lambda callback: callback.on_training_start())
            epoch, batch_in_epoch = divmod(context._batches, epoch_batches) if epoch_batches else (0, context._batches)
            if batch_in_epoch == 0:
                for callback in callbacks:
                    callback.on_epoch_start(epoch)
            trained = self.last_step_batches = self._batches_of_step(context._batches)
            batch = self._next_batch(trained)
            if not isinstance(batch, Sharded):
                batch = context.to_device(batch)
                context._begin_batch()
                with context.autocast():
                    result = self._train_batch(batch, epoch, context._batches)
                self._metrics.add(result)
            else:
                self._train_parts(batch, epoch)
            context._end_batch(trained)
            if self._prepare_in:
                self._prepare_in -= 1
                if not self._prepare_in:
                    checkpoint.prepare(self._parts, self._buffers)
            if batch_in_epoch + trained == epoch_batches:
                for callback in callbacks:
                    callback.on_epoch_end(epoch)

    def _look_ahead(self, until_batches: int) -> None:
        """Makes batches ahead again if a step is to end earlier than they expected."""
        position, epoch_batches = self.context._batches, self.epoch_batches
        begins = max(position, until_batches // epoch_batches * epoch_batches) if epoch_batches else position
        until = until_batches if (until_batches - begins) % self.step_batches else 0
        if until != self._until and max(until, self._until) > position:  # else nothing ahead ends there
            self._until = until
            if not self._data.is_stream:
                self._batches_ahead = None
        if self._batches_ahead is None:
            steps = None if self.step_batches == 1 else self._batches_of_step
            self._batches_ahead = self._data.begin(position, self._shard, steps)

    def _batches_of_step(self, position: int) -> int:
        """Batches of the step that begins at this position."""
        count = self.step_batches
        if count > 1:
            if self.epoch_batches:
                count = min(count, self.epoch_batches - position % self.epoch_batches)
            if self._until > position:
                count = min(count, self._until - position)
        return count

    def _train_parts(self, share: Sharded, epoch: int) -> None:
        """Trains this rank's share of a batch: in one part, or in several whose gradients and metrics are summed."""
        context = self.context
        parts = divided(share, context._rules.parts(share.total, context.slots))
        results = []
        for index, part in enumerate(parts):
            batch = context.to_device(part.batch)
            if index == 0:
                context._begin_batch()
            context._begin_part(part.records, part.total, len(parts) - 1 - index)
            with context.autocast():
                result = self._train_batch(batch, epoch, context._batches)
            context._end_part()
            results.append((result, part.records / part.total))
        self._metrics.add_parts(results)

    def _next_batch(self, count: int) -> Any:
        """A batch, or this rank's share of it. `count`: batches of the step."""
        assert self._batches_ahead is not None
        if self._ranks is not None:
            self._ranks.gang.progress.read()
        if self.step_batches > 1 and self._shard is not None and data.is_stream(self._training):
            ahead, records = self._batches_ahead, self._data
            drawn = [(batch := next(ahead), self._lengths.to_divide(batch, records.records)) for _ in range(count)]
            records.seen.note(drawn[-1][0])
            return data.share_of_stream([batch for batch, _ in drawn], [length for _, length in drawn], self._shard)
        batch = next(self._batches_ahead)
        self._data.seen.note(batch)
        if self._shard is None or isinstance(batch, Sharded):
            return batch
        return self._shard.cut(batch, self._lengths.to_divide(batch, self._data.records))

    def take_metrics(self) -> dict[str, float]:
        metrics = self._metrics.take()
        if metrics:
            if self._ranks is not None:
                metrics = self._ranks.sum_numbers(metrics)
            for reducer in self.context._reducers:
                if reducer.for_training:
                    metrics |= reducer.training_metrics(self._ranks)
        return metrics

    def validate(self) -> dict[str, float]:
        """Leaves no trace in the training: generators and modules' modes are as before. The callbacks may leave some."""
        callbacks = self._callbacks.values()
        self.context._share_buffers()
        for callback in callbacks:
            callback.on_validation_start()
        self._lead_says(periods.untrained(self.context))
        modes = [(module, module.training) for model in self.context._models for module in model.modules()]
        seed = seeds.derive_seed(self._seed, "validation")
        try:
            with torch.no_grad(), self._isolated(seed), self.context.autocast():
                for model in self.context._models:
                    model.eval()
                metrics = self._evaluate(seed)
        finally:
            for module, training in modes:
                module.training = training
        for callback in callbacks:
            callback.on_validation_end(dict(metrics))
        return metrics

    def _evaluate(self, seed: int) -> dict[str, float]:
        trial = self.trial
        reducers = [item for item in self.context._reducers if item.for_validation]
        for item in reducers:
            item.reducer.reset()
        if checking.evaluates_full_dataset(trial):
            full = trial.evaluate_full_dataset
            with data.fed_validation_loader(self._validation, seed, self._validation_orders):
                metrics = to_numbers(full(self._validation), "evaluate_full_dataset", full)
        else:
            gathered = EvaluationMetrics(trial.evaluation_reducer(), trial.evaluate_batch, trial.evaluation_reducer)
            rows = []
            for place, batch, records in self._validation_batches(seed):
                numbers = gathered.numbers(self._evaluate_batch(self.context.to_device(batch), max(place, 0)))
                if place >= 0:
                    rows.append((place, numbers, self._lengths.of(batch, records), "" if place else words(batch)))
            if self._ranks is not None:  # in the order of one process: then the result has the same bits
                rows = sorted((row for own in self._ranks.objects(rows) for row in own), key=lambda row: row[0])
            if not rows:
                raise UserError(NO_BATCH, at=type(self._validation.dataset))
            for _, numbers, length, _ in rows:
                gathered.add_numbers(numbers, length)
            metrics = gathered.reduce()
            if gathered.counts_batches:
                self._lengths.say_unknown(rows[0][3])
        for item in reducers:
            metrics |= item.metrics(self._ranks)
            item.reducer.reset()
        return metrics

    def _validation_batches(self, seed: int) -> Iterator[data.Placed]:
        """Batches of this rank. All ranks evaluate a divided model together, so a rank without a batch left
        evaluates another one, whose result is ignored (position -1)."""
        if self._shard is None or self.context._shards is None:
            return data.placed_validation_batches(self._validation, seed, self._shard, self._validation_orders)
        return data.rounds_of_validation_batches(self._validation, seed, self._shard, self._validation_orders)

    def save(self, directory: Path) -> None:
        self._capture(None)(directory)

    def snapshot(self) -> Callable[[Path], None]:
        return self._capture(self._buffers)

    def snapshot_bytes(self) -> int:
        return checkpoint.memory_needed(self._parts, self._buffers)

    def _capture(self, buffers: Buffers | None) -> Callable[[Path], None]:
        self._call(lambda callback: callback.on_checkpoint_save_start(self.batches))
        return checkpoint.capture(self._parts, self._data.place(self.batches), buffers, self._collected)

    def collect(self) -> None:
        if self._ranks is not None and (self._collected is None or self._collected.batches != self.batches):
            self.context._share_buffers()
            self._collected = checkpoint.collect(self._parts, self._ranks, self._data.seen.mark())

    def saved(self, checkpoint_id: str) -> None:
        self._call(lambda callback: callback.on_checkpoint_save_end(checkpoint_id))

    def load(self, directory: Path) -> None:
        self._batches_ahead, self._until = None, 0
        self._data.resume(checkpoint.restore(self._parts, directory, self._ranks, self._seed, self._lead_says))
        self._collected = None
        self._call(lambda callback: callback.on_checkpoint_load_end())

    def load_weights(self, directory: Path) -> None:
        checkpoint.restore_weights(self.context, directory)

    def _lead_says(self, sentence: str | None) -> None:
        if sentence and self.context.rank == 0:
            _say(sentence)

    def _call(self, hook: Callable[[PyTorchCallback], None]) -> None:
        """Calls a hook that runs more often in a trial that is interrupted: its random draws must not affect the training."""
        if self._callbacks:
            with self._isolated(seeds.derive_seed(self._seed, "hooks")):
                for callback in self._callbacks.values():
                    hook(callback)

    @contextmanager
    def _isolated(self, seed: int) -> Iterator[None]:
        """Context that leaves all generators of the training unchanged, global ones and the user's own."""
        with seeds.isolated_randomness(seed, cuda=True), aside(self._generators):
            yield

    def close(self) -> None:
        self._batches_ahead = None  # the loader's workers end with its iterator
        self._exactness.close()
        if self._started and not self._ended:
            self._ended = True
            under_way = sys.exception()
            try:
                for callback in self._callbacks.values():
                    callback.on_trial_end()
            except Exception as error:
                if under_way is None:
                    raise
                _say(f"on_trial_end failed, too: {type(error).__name__}: {error}")  # the first error says more


def _say(sentence: str) -> None:
    print(f"tenuto: {sentence}", file=sys.stderr, flush=True)
