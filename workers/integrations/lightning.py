"""Lightning's Trainer under the search: it trains to the lengths that the search asks for, and saves in Tenuto's checkpoints.

A step is one training batch. Metrics keep the names given to `self.log`. Written for lightning >= 2.5.

Lightning saves neither the random generators nor, with an ordinary loader, the position in an epoch. Here each epoch begins with
generators seeded from the trial and the epoch, a checkpoint contains their state, and the training loader restores its position
(`lightning_data.py`).

On several ranks Lightning works as under torchrun. All ranks call the same hooks in the same steps; rank 0's reports and
checkpoints are used, and a checkpoint contains the random generators of all.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from tenuto.workers.core_api import Run
from tenuto.workers.errors import UserError
from tenuto.workers.integrations import ranks
from tenuto.workers.integrations.lightning_beside import save_beside
from tenuto.workers.integrations.lightning_data import Passes, attach
from tenuto.workers.integrations.lightning_files import begin_loops, weights, whole
from tenuto.workers.integrations.lightning_metrics import METRICS_FILE, Carried, state_of
from tenuto.workers.pytorch import seeds

CHECKPOINT_FILE = "lightning.ckpt"
RANDOM_FILE = "random.pt"
"""File with the generators' states of one rank; of several ranks it is a list of these, by rank."""
OVER_KEY = "epoch_is_over"
"""Key in the metadata of checkpoints of former versions: true if they were made at the last batch of an epoch, before its end."""
VALIDATION_KEY = "validation"
"""Key in a checkpoint's metadata: the validation at its position, in case the process dies before it is reported."""


def fit(trainer: Trainer, module: LightningModule, run: Run, **data: Any) -> None:
    """Runs `trainer.fit(module, **data)` as long as the search wants it, from the trial's latest checkpoint on. `run`: of
    `tenuto.init()`. `data`: loaders or a data module, as for Lightning's own `fit`.

    Raises UserError if the Trainer's own limits (`max_epochs`, `max_steps`) end the training before. What stops it by
    `trainer.should_stop`, such as EarlyStopping, ends the trial (`run.end_training`).

        import lightning

        import tenuto
        from tenuto.lightning import fit

        def tune(module, training, validation):
            with tenuto.init() as run:
                run.epoch_batches = len(training)
                trainer = lightning.Trainer(max_epochs=-1, logger=False, enable_checkpointing=False)
                fit(trainer, module, run, train_dataloaders=training, val_dataloaders=validation)
    """
    ranks.expect(
        run,
        trainer.world_size,
        "Trainer(devices=LOCAL_WORLD_SIZE, num_nodes=GROUP_WORLD_SIZE), which are variables of the environment, and its strategy",
    )
    latest = run.checkpoint.latest
    passes = Passes(run, resumes=latest is not None and not latest.weights_only)

    def validate(path: Path | None) -> dict[str, float]:
        validation = {name: value for name, value in data.items() if name in ("val_dataloaders", "datamodule")}
        if "val_dataloaders" in validation:
            validation["dataloaders"] = validation.pop("val_dataloaders")
        source = None if path is None else str(path)
        found = trainer.validate(module, **validation, ckpt_path=source, verbose=False, **whole(trainer.validate))
        return {name: float(value) for metrics in found for name, value in metrics.items()}

    callback = TenutoCallback(run, passes, validate)
    trainer.callbacks.insert(0, EpochEnds(callback))  # type: ignore[attr-defined]
    trainer.callbacks.append(callback)  # type: ignore[attr-defined]
    if not callback.begin():
        return
    if latest is not None and not latest.weights_only:
        with run.checkpoint.restore() as directory:
            _go_on(callback, passes, directory)
    attach(passes, trainer, module, data)
    if latest is None:
        trainer.fit(module, **data)
    elif latest.weights_only:
        with run.checkpoint.restore() as directory:
            module.load_state_dict(weights(directory / CHECKPOINT_FILE))
        trainer.fit(module, **data)
    else:
        with run.checkpoint.restore() as directory:
            passes.set_epoch(data.get("train_dataloaders"), passes.epoch)
            trainer.fit(module, **data, ckpt_path=str(directory / CHECKPOINT_FILE), **whole(trainer.fit))
    if not callback.over and trainer.should_stop:
        callback.end_stopped(trainer)
    if not callback.over:
        raise UserError(
            f"the search asks for {callback.target} steps, but Lightning's Trainer ended after {callback.steps}; set "
            "Trainer(max_epochs=-1): the search says how long to train."
        )


def _go_on(callback: TenutoCallback, passes: Passes, directory: Path) -> None:
    """Loads the parts of a checkpoint that Lightning's own file does not contain."""
    passes.resume(directory)
    found = torch.load(directory / RANDOM_FILE, weights_only=True)
    states: list[dict[str, Any]] = found if isinstance(found, list) else [found]
    own = states[passes.rank] if passes.rank < len(states) else None  # then it is new, and begins with the epoch's seed
    assert callback.latest is not None
    passes.go_on(callback.latest.metadata, own)
    if (directory / METRICS_FILE).exists():  # else it is of a former version
        found = torch.load(directory / METRICS_FILE, weights_only=True)
        callback.carried = Carried(found, passes.rank, callback.slots, passes.note)


class EpochEnds(Callback):  # type: ignore[misc] # Lightning is not checked
    """Callback that `fit` adds before all others: what is due at the last batch of an epoch is done when the epoch has ended with
    its validation, schedulers and hooks, and no hook of the next one was called. A checkpoint before that would lose them: a
    resumed Lightning does not do them again."""

    def __init__(self, callback: TenutoCallback) -> None:
        self._callback = callback

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._callback.end_epoch(trainer):
            raise StopIteration  # with which Lightning's own loops end
        # An epoch that begins here is complete; Lightning would take a resumed one for the rest of one that was interrupted.
        trainer.fit_loop.epoch_loop.restarting = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._callback.end_epoch(trainer)


class TenutoCallback(Callback):  # type: ignore[misc]
    """Callback that `fit` adds to the Trainer."""

    def __init__(self, run: Run, passes: Passes, validate: Callable[[Path | None], dict[str, float]]) -> None:
        """`validate`: gives the metrics of a validation with the weights of a checkpoint's file; None: the present ones."""
        self._run, self._passes, self._validate, self.slots = run, passes, validate, run.slots
        self.carried: Carried | None = None
        latest = run.checkpoint.latest
        self.latest = latest if latest is not None and not latest.weights_only else None
        """Generators' states with which the trial goes on."""
        self._operations = run.operations()
        self.target = 0
        self.steps = run.checkpoint.latest.steps if run.checkpoint.latest is not None else 0
        self._mute = False
        """True: a validation before the training."""
        self.over = False
        """True: the search wants no more, or the trial leaves its slots."""
        self._saved_at = self.steps
        self._generators: dict[str, Any] | None = None
        """Generators' states after a batch: Lightning's validation draws from those of the training."""
        self._leaving = False
        self._epoch_over = False
        """True: the last batch of an epoch is trained, and what is due there is not done yet."""
        self._held: dict[str, float] | None = None
        """Validation there."""
        self._changed_checks: tuple[Any, Any] | None = None
        self._validation_names, self._training_names = set[str](), set[str]()
        self._sigterm = signal.getsignal(signal.SIGTERM)

    def begin(self) -> bool:
        """Called before training. False: there is nothing to train."""
        latest = self.latest
        # Another trial's counts for this one only where the search asks for no more than that.
        own = latest is not None and not self._run.checkpoint.is_foreign
        if latest is not None and own and latest.metadata.get(VALIDATION_KEY) is not None:
            self._run.report_validation(latest.steps, latest.metadata[VALIDATION_KEY])
        return self._advance()

    def _advance(self) -> bool:
        """Waits until the search asks for more; False if it does not."""
        for operation in self._operations:
            self.target = operation.steps
            if operation.steps > self.steps:
                return True
            self._validate_here()
        self.over = True
        return False

    def _validate_here(self) -> None:
        """The trial is there already, and this experiment does not know it: it left between the training and the validation, or
        goes on with a trial of an earlier experiment."""
        checkpoints, latest = self._run.checkpoint, self.latest
        if latest is None or latest.steps != self.steps:
            return  # the operation says what is missing
        metrics = latest.metadata.get(VALIDATION_KEY)
        if metrics is None:
            self._mute = True
            try:
                with checkpoints.restore() as directory:
                    metrics = self._validate(directory / CHECKPOINT_FILE)
            finally:
                self._mute = False
        checkpoints.adopt()
        self._run.report_validation(self.steps, metrics)

    # Lightning's hooks, in their order.

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Removes the Trainer's own least lengths, and seeds the epoch."""
        if threading.current_thread() is threading.main_thread():
            # Lightning replaces the signal handler that asks for a checkpoint by its own.
            signal.signal(signal.SIGTERM, self._sigterm)
        trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = 0, None  # the search decides
        self._passes.seed(self._passes.epoch)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts back what Lightning does not resume itself."""
        self._run.checkpoint.loaded()
        latest, carried = self.latest, self.carried
        self._validation_names |= set() if carried is None else carried.begin(trainer)
        if latest is not None and latest.metadata.get(OVER_KEY) and latest.metadata.get(VALIDATION_KEY) is not None:
            # Lightning must know here, too, that a validation was at this position; else it trains one more batch of the epoch.
            self._validate_after(trainer, trainer.fit_loop.epoch_loop.batch_progress.current.ready - 1)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Puts back the state with which a resumed epoch goes on."""
        self._put_back_checks(trainer)
        if self.carried is not None:
            self.carried.begin_batch(trainer)
        self._passes.begin_batch()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Reports training metrics; validates and saves when it is due."""
        run = self._run
        self.steps += 1
        if self.carried is not None:
            self.carried.end_batch(trainer)
        self._passes.note_trained()
        self._training_names |= set(trainer.callback_metrics) - self._validation_names
        if run.should_report(self.steps):
            run.report_training(self.steps, self._metrics(trainer, self._training_names))
        self._leaving = self._leaving or run.should_preempt()
        if self.steps >= self.target or run.should_validate(self.steps) or self._is_stopped(trainer):
            self._validate_after(trainer, batch_idx)
        loop: Any = trainer.fit_loop.epoch_loop
        if loop._num_ready_batches_reached():
            self._epoch_over = True
        elif not loop._should_check_val_fx(trainer.fit_loop._data_fetcher):  # else when the validation has ended
            if self._leaving:
                self._save(trainer, None)
                self._stop(trainer)
                trainer.limit_val_batches = 0  # the slots are wanted: no last validation
            elif run.should_save(self.steps):
                self._save(trainer, None)
        self._generators = seeds.random_state()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reports the validation, after a checkpoint that is due."""
        if trainer.sanity_checking or self._mute:
            return
        self._put_back_checks(trainer)
        if self._generators is not None:
            seeds.restore_random_state(self._generators)
        self._validation_names |= set(trainer.callback_metrics) - self._training_names
        metrics = self._metrics(trainer, self._validation_names)
        if self._epoch_over:
            self._held = metrics
            return
        at_target, stopped = self.steps >= self.target, self._is_stopped(trainer)
        if self._leaving or at_target or stopped or self._run.should_save(self.steps):
            self._save(trainer, metrics)  # before the report: a search that reacts to it may count on the checkpoint
        self._run.report_validation(self.steps, metrics)
        if stopped:
            self.end_stopped(trainer)
        elif self._leaving or (at_target and not self.over and not self._advance()):
            self._stop(trainer)

    def end_epoch(self, trainer: Trainer) -> bool:
        """Does what is due at the last batch of an epoch of the `trainer`. True: training is over, or leaves its slots."""
        if not self._epoch_over:
            return False
        held, self._held, self._epoch_over = self._held, None, False
        at_target, stopped = self.steps >= self.target and held is not None, self._is_stopped(trainer)
        if self._leaving or at_target or stopped or self._run.should_save(self.steps):
            self._save(trainer, held, between_epochs=True)
        if held is not None:
            self._run.report_validation(self.steps, held)
        if stopped:
            return True  # `fit` ends the trial: it may have to validate before
        if self._leaving or (at_target and not self.over and not self._advance()):
            self.over = True
        self._passes.seed(self._passes.next_epoch)
        return self.over

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends the pass over the data."""
        self._put_back_checks(trainer)
        if self.carried is not None:
            self.carried.end_batch(trainer)
        if self._passes.trained:
            trainer.fit_loop.restarting = False  # else schedulers with a metric are left out of a resumed epoch
        self._passes.end_epoch()

    def _put_back_checks(self, trainer: Trainer) -> None:
        if self._changed_checks is not None:
            trainer.val_check_batch, trainer.check_val_every_n_epoch = self._changed_checks
            self._changed_checks = None

    def _validate_after(self, trainer: Trainer, batch_idx: int) -> None:
        """Makes Lightning validate after this batch, whatever its own period (`val_check_batch` batches of this epoch)."""
        self._changed_checks = (trainer.val_check_batch, trainer.check_val_every_n_epoch)
        trainer.val_check_batch, trainer.check_val_every_n_epoch = batch_idx + 1, 1

    def _stop(self, trainer: Trainer) -> None:
        self.over = trainer.should_stop = True

    def _is_stopped(self, trainer: Trainer) -> bool:
        """True if the user's code or callbacks have stopped the training."""
        return bool(trainer.should_stop) and not self.over and not self._leaving

    def end_stopped(self, trainer: Trainer) -> None:
        """Ends a trial whose training was stopped by the `trainer`. One that has not validated yet is validated now."""
        if self._run.validated_at is None:
            self._mute = True
            self._run.report_validation(self.steps, self._validate(None))
        found: list[Any] = [item for item in trainer.callbacks if isinstance(item, EarlyStopping)]  # type: ignore[attr-defined]
        found = [item for item in found if item.stopped_epoch or item.wait_count >= item.patience]
        said = [getattr(item, "stopping_reason_message", None) or item.monitor for item in found]
        self._run.end_training(f"Lightning's EarlyStopping: {said[0]}" if said else "trainer.should_stop was set")
        self._advance()

    def _save(self, trainer: Trainer, validation: dict[str, float] | None, between_epochs: bool = False) -> None:
        if self._saved_at == self.steps:
            return
        metadata = {VALIDATION_KEY: validation, **self._passes.metadata(trainer.train_dataloader, between_epochs)}
        if between_epochs:
            begin_loops(trainer.fit_loop.epoch_loop)
        with self._run.checkpoint.save(self.steps, metadata) as directory:
            save_beside(trainer, self._run, self.steps, directory / CHECKPOINT_FILE)
            states = ranks.of_all(self._run, seeds.random_state())
            torch.save(states if len(states) > 1 else states[0], directory / RANDOM_FILE)
            torch.save(ranks.of_all(self._run, state_of(trainer, self._validation_names)), directory / METRICS_FILE)
            self._passes.save(directory)
        self._saved_at = self.steps

    def _metrics(self, trainer: Trainer, names: set[str]) -> dict[str, float]:
        found: dict[str, torch.Tensor] = dict(trainer.callback_metrics)
        return {name: float(found[name]) for name in sorted(names) if name in found}
