"""Hugging Face's Trainer under the search: it trains to the lengths that the search asks for, and saves in Tenuto's checkpoints.

A step is what the Trainer counts in `global_step`: one step of the optimizer. Metrics keep the Trainer's names (`loss`,
`eval_loss`, `eval_accuracy`). Written for transformers >= 4.50.

On several ranks the Trainer works as under torchrun. All its ranks call the same hooks in the same steps; rank 0's reports and
checkpoints are used, and a checkpoint contains the random generators of all.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import EarlyStoppingCallback, TrainerCallback

from tenuto.workers.core_api import Run
from tenuto.workers.errors import UserError
from tenuto.workers.integrations import ranks
from tenuto.workers.integrations.data_order import DataOrder
from tenuto.workers.integrations.huggingface_loss import LOSS_FILE, OpenLoss
from tenuto.workers.pytorch import seeds

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

VALIDATION_KEY = "validation"
"""Key in a checkpoint's metadata: the validation at its position, in case the process dies before it is reported."""
EPOCH_TOLERANCE = 1e-6
"""Tolerance for fractions of an epoch, which are rounded."""
_NO_METRICS = ("epoch", "total_flos")
_TIMES = ("_runtime", "_per_second")
"""Suffixes of metrics about the speed of the machine, which say nothing about the model and differ each time."""
_SUMMARY_PREFIX = "train_"
_EVALUATION_PREFIX = "eval_"


def train(trainer: Trainer, run: Run) -> None:
    """Runs `trainer.train()` as long as the search wants it, from the trial's latest checkpoint on. `run`: of `tenuto.init()`.

    The Trainer's own length (`max_steps`) must reach `run.max_steps`, on which its learning-rate schedule depends; otherwise
    UserError is raised, as for `save_strategy` "best". A callback that stops the training, such as EarlyStoppingCallback, ends
    the trial (`run.end_training`).

        from transformers import Trainer, TrainingArguments

        import tenuto
        from tenuto import huggingface

        def tune(model, training, validation):
            with tenuto.init() as run:
                arguments = TrainingArguments("output", max_steps=run.max_steps, save_strategy="no", report_to=[])
                huggingface.train(Trainer(model, arguments, train_dataset=training, eval_dataset=validation), run)
    """
    ranks.expect(run, trainer.args.world_size, "nothing about processes in TrainingArguments: the Trainer finds the ranks itself")
    if run.epoch_batches is None and (length := _epoch_steps(trainer)) is not None:
        run.epoch_batches = length
    latest = run.checkpoint.latest
    order = DataOrder(run, resumes=latest is not None and not latest.weights_only)
    make_loader = trainer.get_train_dataloader
    trainer.get_train_dataloader = lambda: order.attach(make_loader())  # type: ignore[method-assign]
    loss = OpenLoss(trainer)
    callback = TenutoCallback(run, order, trainer, loss)
    trainer.add_callback(callback)
    if latest is None:
        if callback.begin(0):
            trainer.train()
    elif latest.weights_only:
        with run.checkpoint.restore() as directory:
            trainer._load_from_checkpoint(str(directory))  # the Trainer's own way, whatever the files are called
        if callback.begin(0):
            trainer.train()
    elif callback.begin(latest.steps):
        with run.checkpoint.restore() as directory:
            order.resume(directory)
            loss.resume(directory, run.rank)
            trainer.train(resume_from_checkpoint=str(directory))
    callback.finish()


class TenutoCallback(TrainerCallback):  # type: ignore[misc]
    """Callback that `train` adds to the Trainer."""

    def __init__(self, run: Run, order: DataOrder, trainer: Trainer, loss: OpenLoss) -> None:
        self._run, self._order, self._trainer, self._loss = run, order, trainer, loss
        self._epoch: int | None = None
        self._operations = run.operations()
        self._target = 0
        self._leaving = self._over = False
        """True: the trial leaves its slots; the search wants no more."""
        self._saved_at: int | None = None
        self._mute = False
        """True: an evaluation before the training, whose position the Trainer does not know."""
        self._held: dict[str, float] | None = None
        self._randomness: dict[str, Any] | None = None

    def begin(self, steps: int) -> bool:
        """Called before training, with the `steps` trained so far. False: there is nothing more to train."""
        checkpoints = self._run.checkpoint
        latest = checkpoints.latest
        # Another trial's counts for this one only where the search asks for no more than that.
        own = latest is not None and not latest.weights_only and not checkpoints.is_foreign
        if latest is not None and own and latest.metadata.get(VALIDATION_KEY) is not None:
            self._run.report_validation(latest.steps, latest.metadata[VALIDATION_KEY])
        return self._advance(steps)

    def _advance(self, steps: int) -> bool:
        """Waits until the search asks for more than `steps`; False if it does not."""
        for operation in self._operations:
            self._target = operation.steps
            if operation.steps > steps:
                return True
            self._validate_here(steps)
        self._over = True
        return False

    def finish(self) -> None:
        """Called after the training. If the training ended early, the trial ends here."""
        if not self._over and not self._leaving:
            self._end()
            self._advance(self._target)

    def _stopped(self, state: TrainerState, control: TrainerControl) -> bool:
        """True if a callback of the user's has stopped the training. At its full length the Trainer itself does."""
        asked = bool(control.should_training_stop) and state.global_step < state.max_steps
        return asked and not self._over and not self._leaving

    def _end(self) -> None:
        found: Any = getattr(self._trainer.callback_handler, "callbacks", ())
        stopping = [item for item in found if isinstance(item, EarlyStoppingCallback)]
        if any(item.early_stopping_patience_counter >= item.early_stopping_patience for item in stopping):
            metric, patience = self._trainer.args.metric_for_best_model, stopping[0].early_stopping_patience
            reason = f"Hugging Face's EarlyStoppingCallback: {metric} did not improve in {patience} evaluations"
        else:
            reason = "a callback of Hugging Face's Trainer set should_training_stop"
        self._run.end_training(reason)

    def _validate_here(self, steps: int) -> None:
        """Validates a trial that has reached this step already, without a validation that this experiment knows: it left between
        the training and the validation, or goes on with a trial of an earlier experiment."""
        checkpoints = self._run.checkpoint
        latest = checkpoints.latest
        if latest is None or latest.steps != steps:
            return  # the operation says what is missing
        metrics = latest.metadata.get(VALIDATION_KEY)
        if metrics is None:
            with checkpoints.restore() as directory:
                self._trainer._load_from_checkpoint(str(directory))
            self._mute = True
            try:
                metrics = _numbers(self._trainer.evaluate())
            finally:
                self._mute = False
        checkpoints.adopt()
        self._run.report_validation(steps, metrics)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Checks the length of the training, and begins it."""
        self._run.checkpoint.loaded()
        self._loss.begin()
        if self._target == 0 and not self.begin(state.global_step):
            control.should_training_stop = True
        if str(getattr(args.save_strategy, "value", args.save_strategy)) == "best":
            raise UserError("save_strategy 'best' decides by itself when to save; set 'no': Tenuto keeps the best checkpoint.")
        if 0 < state.max_steps < self._target:
            raise UserError(
                f"the search asks for {self._target} steps, but the Trainer would end after {state.max_steps}; set "
                "TrainingArguments(max_steps=run.max_steps)."
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Has the Trainer log, evaluate, save and stop when it is due."""
        run, steps = self._run, state.global_step
        if run.should_report(steps):
            control.should_log = True
        if run.should_preempt():
            self._leaving = True
            control.should_save = control.should_training_stop = True
        elif steps >= self._target:
            control.should_evaluate = control.should_save = True
        else:
            control.should_evaluate = control.should_evaluate or run.should_validate(steps)
            control.should_save = control.should_save or run.should_save(steps)
        self._complete(state, control)
        self._note_randomness(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Has the Trainer evaluate and save if the training stops here."""
        self._complete(state, control)
        self._note_randomness(control)

    def _complete(self, state: TrainerState, control: TrainerControl) -> None:
        """Has the model evaluated and saved if the user's callbacks stop the training here."""
        if self._stopped(state, control):
            control.should_evaluate = control.should_evaluate or self._run.validated_at != state.global_step
            control.should_save = control.should_save or self._saved_at != state.global_step

    def _note_randomness(self, control: TrainerControl) -> None:
        """Keeps the generators' state over an evaluation, which draws from the generators of the training. So they do not
        depend on the number of evaluations, and a resumed trial ends like an uninterrupted one."""
        self._randomness = seeds.random_state() if control.should_evaluate else None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Reports the training metrics."""
        if self._mute:
            return
        metrics = {
            name: value for name, value in _numbers(logs).items() if not name.startswith((_SUMMARY_PREFIX, _EVALUATION_PREFIX))
        }
        if metrics:
            self._run.report_training(state.global_step, metrics)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Reports the validation, after a checkpoint that is due."""
        if self._mute:
            return
        self._held = _numbers(metrics)
        control.should_save = control.should_save or self._stopped(state, control)
        if self._randomness is not None:
            seeds.restore_random_state(self._randomness)
            self._randomness = None
        if not control.should_save:
            self._report_held(state.global_step)
        # Otherwise the checkpoint is reported first: a search that reacts to the validation may rely on it.

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stores what the Trainer saved as a checkpoint of the trial."""
        run, steps = self._run, state.global_step
        source = Path(args.output_dir or ".") / f"checkpoint-{steps}"
        own = source / f"rng_state_{run.rank}.pth"  # which each rank has written, perhaps to another node's disk
        generators = ranks.of_all(run, own.read_bytes() if own.exists() else None)
        losses = ranks.of_all(run, self._loss.state())
        with run.checkpoint.save(steps, {VALIDATION_KEY: self._held}) as directory:
            if run.rank == 0:
                for rank, generator in enumerate(generators):
                    if generator is not None:
                        (source / f"rng_state_{rank}.pth").write_bytes(generator)
                # The Trainer may look for its own checkpoint again.
                (shutil.copytree if args.load_best_model_at_end else _move_tree)(source, directory, dirs_exist_ok=True)
                found = {"sums": [loss["sum"] for loss in losses], "last_logged": losses[0]["last_logged"]}
                (directory / LOSS_FILE).write_text(json.dumps(found))
            self._order.save(directory)
        if run.slots > 1 and not args.load_best_model_at_end:
            ranks.of_all(run, None)  # rank 0 has what it needs
            shutil.rmtree(source, ignore_errors=True)
        self._saved_at = steps
        self._report_held(steps)
        if self._stopped(state, control):
            self._end()
        elif steps >= self._target and not self._leaving and not self._advance(steps):
            control.should_training_stop = True

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Begins the order of the data in this epoch."""
        self._report_held(state.global_step)
        # The Trainer counts fractions of an epoch; here they are whole, except in an epoch that is resumed.
        self._epoch = int((state.epoch or 0.0) + EPOCH_TOLERANCE) if self._epoch is None else self._epoch + 1
        self._order.begin(self._epoch)

    def _report_held(self, steps: int) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._run.report_validation(steps, held)


def _move_tree(source: Path, target: Path, *, dirs_exist_ok: bool) -> None:
    for path in source.iterdir():
        shutil.move(path, target / path.name)
    source.rmdir()


def _numbers(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    return {
        name: value
        for name, value in (metrics or {}).items()
        if isinstance(value, (int, float)) and name not in _NO_METRICS and not name.endswith(_TIMES)
    }


def _epoch_steps(trainer: Trainer) -> int | None:
    """Optimizer steps of one epoch; None for data without a length. Each rank has batches of its own, and all have the same
    number."""
    args = trainer.args
    try:
        samples = len(trainer.train_dataset)  # type: ignore[arg-type]
    except TypeError:
        return None
    divided: Callable[[float], int] = math.floor if args.dataloader_drop_last else math.ceil
    batches = divided(divided(samples / args.train_batch_size) / int(args.world_size))
    return max(1, math.ceil(batches / int(args.gradient_accumulation_steps)))
