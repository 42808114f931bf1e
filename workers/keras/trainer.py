"""Trains a KerasTrial, position by position (see `Trainer` for its promise).

It calls the model's own compiled training step batch by batch, as `model.fit` does: so `train_step`, metrics, learning-rate
schedules, precision policies and callbacks work as in Keras.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras

from tenuto.schemas.config.experiment import Reproducibility
from tenuto.workers.harness.randomness import derive_seed
from tenuto.workers.harness.signatures import check_class
from tenuto.workers.harness.trainer import Trainer, TrialInfo
from tenuto.workers.keras import building, data, periods, randomness, user_attributes
from tenuto.workers.keras import callbacks as callback_state
from tenuto.workers.keras.backends import open_backend
from tenuto.workers.keras.batches import Batches, BatchesPosition
from tenuto.workers.keras.checkpoint import (
    Captured,
    Loaded,
    build_optimizers,
    built_over,
    floats,
    given_rates,
    load_weights_only,
    take_over_rates,
    variables_of,
)
from tenuto.workers.keras.context import KerasTrialContext
from tenuto.workers.keras.trial import KerasTrial
from tenuto.workers.keras.validating import evaluate
from tenuto.workers.keras.weights import assign, copies_of


class KerasTrainer(Trainer):
    has_snapshots = True

    def __init__(self, trial_class: type[KerasTrial], info: TrialInfo) -> None:
        """Builds the user's trial. Raises errors of the user's code."""
        self._seed = info.trial_seed
        exact = trial_class.deterministic and Reproducibility.model_validate(info.config.get("reproducibility") or {}).exact
        building.apply(info.config)
        self._backend = open_backend(info, exact, _say)
        keras.config.disable_traceback_filtering()  # errors name the user's lines
        self.context = self._make_context(info)
        randomness.seed_everything(derive_seed(self._seed, "trial"))
        check_class(trial_class, KerasTrial)
        self.trial = self._make_trial(trial_class)
        for sentence in callback_state.check_trial(self.trial):
            _say(sentence)
        with self._backend.scope():
            self.model = building.checked_model(self.trial)
        self._given = given_rates(self.model)
        with randomness.isolated_randomness(derive_seed(self._seed, "loaders")):
            self._callbacks = callback_state.checked(self.trial)
        self._training = self._open_training_data()
        with randomness.building(derive_seed(self._seed, "validation data")):
            self._validation = self.trial.build_validation_data()
        self._list = keras.callbacks.CallbackList(self._callbacks, model=self.model, steps=self.epoch_batches)
        self._batch_hooks = building.has_batch_hooks(self._callbacks)
        self._replicas = self._backend.replicas
        rank = self.context.rank if self._replicas is not None else 0
        randomness.seed_everything(derive_seed(self._seed, "training", *((rank,) if rank else ())))
        self._batches = 0
        self._taken_at = 0
        self._epoch_ends: int | None = None
        """True: the last batch of an epoch is trained, and its end is not reported yet: it is, with the validation, if one
        follows, or before the next batch."""
        self._logs: dict[str, Any] = {}
        """Result of the last training step."""
        self._held: Any = None
        """A batch that was fetched to build the model, and is trained next."""
        self._recent: Any = None
        """The batch that was trained last."""
        self._built = self._began = self._ended = False
        self._place = BatchesPosition()
        known = [self._training.data, self._validation]
        self._attributes = user_attributes.attributes_of(
            self.trial, self._callbacks, self.model, known, self._training.own_generators
        )
        self._structure: user_attributes.ModelStructure | None = None
        self._collected: tuple[int, Callable[[Path], None]] | None = None
        """(batches, the state there), with several ranks."""

    def _make_context(self, info: TrialInfo) -> KerasTrialContext:
        return KerasTrialContext(info)

    def _make_trial(self, trial_class: type[KerasTrial]) -> KerasTrial:
        return trial_class(self.context)

    def _open_training_data(self) -> Batches:
        trial, seed = self.trial, derive_seed(self._seed, "training data")
        given = building.given_epoch(trial)
        with randomness.building(seed):
            given_data = trial.build_training_data()
        training = data.training_batches(
            given_data,
            trial.build_training_data,
            seed=seed,
            batch_size=self.context.batch_size,
            shuffle=trial.shuffle,
            epoch_batches=given,
            ranks=self._backend.data_ranks,
            note=self._backend.note_lost,
        )
        training.seek(0, None)
        return training

    @property
    def epoch_batches(self) -> int | None:
        return self._training.epoch_batches

    @property
    def batches(self) -> int:  # type: ignore[override]
        return self._batches

    def check_length(self, full_batches: int) -> None:
        for sentence in periods.doubts(self.model, self._callbacks, full_batches, self.epoch_batches):
            self._lead_says(sentence)

    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        epoch_batches, model = self.epoch_batches, self.model
        self._begin()
        self._backend.begin_training(model)
        while self._batches < until_batches and not interrupted():
            epoch, batch_in_epoch = divmod(self._batches, epoch_batches) if epoch_batches else (0, self._batches)
            if batch_in_epoch == 0:
                ended = self._epoch_ends is not None
                self._end_epoch({})
                if ended and self._replicas is None and self.stop_requested is not None:
                    continue  # a callback has just asked for it; of several ranks each must ask equally often whether to go on
                model.reset_metrics()
                self._list.on_epoch_begin(epoch)
            self._backend.read()
            batch = self._next_batch()
            if self._batch_hooks:
                self._list.on_train_batch_begin(batch_in_epoch)
            self._recent = batch
            self._make_functions()
            self._logs = self._backend.step(model, batch)
            self._batches += 1
            if self._batch_hooks:
                self._list.on_train_batch_end(batch_in_epoch, self._batch_logs())
            if batch_in_epoch + 1 == epoch_batches:
                self._epoch_ends = epoch

    @property
    def stop_requested(self) -> str | None:
        asked = super().stop_requested
        return callback_state.reason_to_stop(self.model, self._callbacks) if asked is None else asked

    def _begin(self) -> None:
        if not self._began:
            self._began = True
            with randomness.isolated_randomness(derive_seed(self._seed, "hooks")):
                self._list.on_train_begin()

    def _next_batch(self) -> Any:
        if self._held is None:
            batch = self._backend.to_batch(self._training.next_batch())
            self._build(batch)
            return batch
        batch, self._held = self._held, None
        return batch

    def _build(self, batch: Any) -> None:
        """Builds variables of model, optimizer and metrics that wait for the shapes of a batch."""
        if not self._built:
            with self._backend.scope():
                building.build_variables(self.model, batch)
            self._backend.make_functions(self.model)
            self._backend.diversify(self.model)
            self._structure = user_attributes.ModelStructure(self.model)
            self._attributes.widen()
            self._built = True

    def _make_functions(self) -> None:
        """Makes the functions again if the user's code compiled the model again: a checkpoint contains the parts of a compiled
        model."""
        if getattr(self.model, "train_function", None) is None:
            with self._backend.scope():
                building.build_variables(self.model, self._recent if self._held is None else self._held)
            self._backend.make_functions(self.model)

    def _end_epoch(self, validation: dict[str, float]) -> None:
        epoch, self._epoch_ends = self._epoch_ends, None
        if epoch is not None:
            self._list.on_epoch_end(epoch, self._training_metrics() | validation)

    def _batch_logs(self) -> dict[str, float]:
        """Logs of a batch; with replicas those of all, so that a callback decides alike on each rank."""
        return floats(self._logs) if self._replicas is None else self._training_metrics()

    def _training_metrics(self) -> dict[str, float]:
        return self._backend.metrics(self.model, self._logs)

    def take_metrics(self) -> dict[str, float]:
        """Metrics as Keras shows them: over the batches since the epoch began."""
        if self._taken_at == self._batches:
            return {}
        self._taken_at = self._batches
        metrics = self._training_metrics()
        if self.epoch_batches is None:
            self.model.reset_metrics()
        return metrics

    def validate(self) -> dict[str, float]:
        """Leaves no trace in the training: metrics and generators are as before. The callbacks may leave some."""
        training = self._training_metrics() if self._epoch_ends is not None else {}
        if not self._built:
            self._hold_batch()
        self._begin()
        self._make_functions()
        self._lead_says(periods.untrained(self.model, self._batches))
        kept = {kind: variables_of(self.model)[kind] for kind in ("metrics", "generators")}
        before = {kind: copies_of(variables) for kind, variables in kept.items()}
        seed = derive_seed(self._seed, "validation")
        with randomness.isolated_randomness(seed), user_attributes.own_generators_aside(self.model):
            result = evaluate(self.trial, self.model, self._backend, self._validation, self._list, self.context.batch_size)
        with self._backend.scope():
            for kind, variables in kept.items():
                assign(variables, before[kind], kind)
        metrics = {f"val_{name}": value for name, value in floats(result).items()}
        if self._epoch_ends is not None:
            epoch, self._epoch_ends = self._epoch_ends, None
            self._list.on_epoch_end(epoch, training | metrics)
        return metrics

    def save(self, directory: Path) -> None:
        self.snapshot()(directory)

    def collect(self) -> None:
        if self._backend.ranks > 1 and (self._collected is None or self._collected[0] != self._batches):
            self._collected = (self._batches, self._capture())  # every rank reads the variables: some are sums over the ranks

    def snapshot(self) -> Callable[[Path], None]:
        if self._collected is not None and self._collected[0] == self._batches:
            return self._collected[1]
        return self._capture()

    def _capture(self) -> Callable[[Path], None]:
        if not self._built:
            self._hold_batch()
        self._make_functions()
        if self._held is None:
            self._place = self._training.place()
        values = {
            "batches": self._batches,
            "taken_at": self._taken_at,
            "epoch_ends": self._epoch_ends,
            "logs": floats(self._logs),
            "signatures": getattr(self._backend, "signatures", []),
            "random": randomness.random_state(),
            "given": self._given,
            "built": built_over(self.model),
            **(own := user_attributes.state_of(self.trial, self._callbacks, self._attributes)),
        }
        user_attributes.note_unsaved(self.trial, self._attributes, self._structure, self._backend)
        self._backend.share_statistics(self.model)
        if self._replicas is None:
            return Captured(self.model, values, self._place, self._backend.record()).write
        values["ranks"] = self._replicas.collect(self.model, own)
        with self._replicas.reduced_metrics(self.model):
            return Captured(self.model, values, self._place, self._backend.record()).write

    def _hold_batch(self) -> None:
        """Fetches the next batch early, to build the model from it."""
        self._place = self._training.place()
        batch = self._backend.to_batch(self._training.next_batch())
        self._build(batch)
        self._held = batch

    def load(self, directory: Path) -> None:
        loaded = Loaded(directory)
        values = loaded.values
        callback_state.check_saved(self.trial, self._callbacks, values["callbacks"])
        self._collected = None
        self._batches, self._taken_at, self._epoch_ends = values["batches"], values["taken_at"], values["epoch_ends"]
        self._logs = values["logs"]
        self._training.seek(self._batches, loaded.place)
        self._backend.signatures = list(values["signatures"])
        # A batch is fetched now, and trained first: some models get their variables only from the shapes of a batch.
        self._place = loaded.place
        self._held = self._backend.to_batch(self._training.next_batch())
        self._build(self._held)
        self._rebuild(values)
        with user_attributes.as_made(self._attributes):
            self._backend.retrace(self.model, values["signatures"])
        self._began = False
        self._begin()
        with self._backend.scope():
            build_optimizers(self.model, values.get("built"))
            loaded.into(self.model)
            if changed := take_over_rates(self.model, self._given, values.get("given")):
                _say(f"the optimizer takes this trial's own learning rate: {', '.join(f'{rate:g}' for rate in changed)}")
        own: Mapping[str, Any] | None = values
        if self._replicas is None:
            self._backend.diversify(self.model)
        else:
            own = self._replicas.take_own(self.model, values.get("ranks"))
        saved_users = (own or values).get("users", values)
        for callback, (_, state) in zip(self._callbacks, saved_users["callbacks"], strict=True):
            callback_state.restore(callback, state)
        self._backend.resume(loaded.exactness)
        with self._backend.scope():
            user_attributes.restore(self.trial, self._attributes, saved_users, self._backend)
        if own is not None or self.context.rank == 0:
            randomness.restore_random_state((own or values)["random"])
        else:
            randomness.seed_everything(derive_seed(self._seed, "training", self.context.rank, "from", self._batches))

    def _rebuild(self, values: Mapping[str, Any]) -> None:
        if type(self.trial).rebuild is not KerasTrial.rebuild:
            with self._backend.scope():
                self.trial.rebuild(self.model, values["trial"])
            self._make_functions()

    def load_weights(self, directory: Path) -> None:
        if not self._built:
            self._hold_batch()
        with self._backend.scope():
            load_weights_only(self.model, directory)

    def _lead_says(self, sentence: str | None) -> None:
        """Rank 0 alone, where there are several."""
        if sentence is not None and self.context.rank == 0:
            _say(sentence)

    def close(self) -> None:
        self._training.close()
        self._backend.close()
        if self._began and not self._ended:
            self._ended = True
            under_way = sys.exception()
            try:
                self._list.on_train_end()
            except Exception as error:
                if under_way is None:
                    raise
                _say(f"on_train_end failed, too: {type(error).__name__}: {error}")  # the first error says more


def _say(sentence: str) -> None:
    print(f"tenuto: {sentence}", file=sys.stderr, flush=True)
