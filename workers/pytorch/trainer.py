"""Trains a PyTorchTrial, position by position (see `Trainer` for what that promises)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tenuto.workers.harness.errors import UserError
from tenuto.workers.harness.trainer import Trainer, TrialInfo
from tenuto.workers.pytorch import data, seeds, state
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.metrics import EvaluationMetrics, TrainingMetrics, to_numbers
from tenuto.workers.pytorch.trial import PyTorchTrial


class PyTorchTrainer(Trainer):
    def __init__(self, trial_class: type[PyTorchTrial], info: TrialInfo) -> None:
        """Builds the user's trial. Raises what the user's code raises."""
        self._seed = info.trial_seed
        self.context = PyTorchTrialContext(info, prepare_torch(info.local_slots, trial_class.deterministic))
        seeds.seed_everything(seeds.derive_seed(self._seed, "trial"))
        self.trial = trial_class(self.context)
        if not self.context._models or not self.context._optimizers:
            raise UserError(
                f"{trial_class.__name__}.__init__ must wrap a model and an optimizer: self.model = context.wrap_model(...), "
                "self.optimizer = context.wrap_optimizer(...). What is not wrapped is not saved."
            )
        if trial_class.evaluate_batch is PyTorchTrial.evaluate_batch and not self._evaluates_full_dataset():
            raise UserError(
                f"{trial_class.__name__} needs evaluate_batch or evaluate_full_dataset: the search compares their metrics."
            )
        with seeds.isolated_randomness(seeds.derive_seed(self._seed, "loaders")):
            self._training = data.check_loader(self.trial.build_training_data_loader(), "build_training_data_loader")
            self._validation = data.check_loader(self.trial.build_validation_data_loader(), "build_validation_data_loader")
        self.context._epoch_batches = data.epoch_batches(self._training)
        seeds.seed_everything(seeds.derive_seed(self._seed, "training"))
        self._batches_ahead: Iterator[Any] | None = None
        self._metrics = TrainingMetrics()

    @property
    def epoch_batches(self) -> int:
        return data.epoch_batches(self._training)

    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        context, trial, epoch_batches = self.context, self.trial, self.epoch_batches
        if self._batches_ahead is None:
            self._batches_ahead = data.training_batches(
                self._training, seeds.derive_seed(self._seed, "training data"), self.batches
            )
        while self.batches < until_batches and not interrupted():
            batch = context.to_device(next(self._batches_ahead))
            context._stepped.clear()
            self._metrics.add(trial.train_batch(batch, self.batches // epoch_batches, self.batches))
            self.batches += 1
            for scheduler in context._schedulers:
                scheduler.after_batch(self.batches, epoch_batches)
            context._batches = self.batches

    def take_metrics(self) -> dict[str, float]:
        return self._metrics.take()

    def validate(self) -> dict[str, float]:
        """Leaves no trace in the training: generators and modules' modes are as before."""
        modes = [(module, module.training) for model in self.context._models for module in model.modules()]
        seed = seeds.derive_seed(self._seed, "validation")
        try:
            with torch.no_grad(), seeds.isolated_randomness(seed, cuda=True):
                for model in self.context._models:
                    model.eval()
                return self._evaluate(seed)
        finally:
            for module, training in modes:
                module.training = training

    def _evaluate(self, seed: int) -> dict[str, float]:
        if self._evaluates_full_dataset():
            loader = data.positioned_validation_loader(self._validation, seed)
            return to_numbers(self.trial.evaluate_full_dataset(loader), "evaluate_full_dataset")
        metrics = EvaluationMetrics(self.trial.evaluation_reducer())
        for batch in data.validation_batches(self._validation, seed):
            length = self.trial.get_batch_length(batch)
            metrics.add(self.trial.evaluate_batch(self.context.to_device(batch)), length)
        return metrics.reduce()

    def _evaluates_full_dataset(self) -> bool:
        return type(self.trial).evaluate_full_dataset is not PyTorchTrial.evaluate_full_dataset

    def save(self, directory: Path) -> None:
        context = self.context
        others = [
            state.save_model(model.state_dict(), directory / state.model_file(index))
            for index, model in enumerate(context._models)
        ]
        state.save_state(
            {
                "batches": self.batches,
                "versions": {"torch": torch.__version__},
                "models_other": others,
                "optimizers": [optimizer.state_dict() for optimizer in context._optimizers],
                "gradients": self._open_gradients(),
                "schedulers": [item.scheduler.state_dict() for item in context._schedulers],
                "scalers": [scaler.state_dict() for scaler in context._scalers],
                "random": seeds.random_state(),
                "trial": dict(self.trial.state_dict()),
            },
            directory / state.STATE_FILE,
        )

    def load(self, directory: Path) -> None:
        context = self.context
        saved = state.load_state(directory / state.STATE_FILE)
        for kind, have in (
            ("optimizers", context._optimizers),
            ("schedulers", context._schedulers),
            ("scalers", context._scalers),
            ("models_other", context._models),
        ):
            if len(saved[kind]) != len(have):
                raise UserError(
                    f"the checkpoint holds {len(saved[kind])} {kind.removesuffix('_other')}, but __init__ wrapped {len(have)}; "
                    "it must wrap the same ones in the same order each time."
                )
        for index, model in enumerate(context._models):
            model.load_state_dict(state.load_model_state(directory, index) | saved["models_other"][index])
        for optimizer, value in zip(context._optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(value)
        for item, value in zip(context._schedulers, saved["schedulers"], strict=True):
            item.scheduler.load_state_dict(value)
        for scaler, value in zip(context._scalers, saved["scalers"], strict=True):
            scaler.load_state_dict(value)
        self._restore_gradients(saved["gradients"])
        if saved["trial"]:
            self.trial.load_state_dict(saved["trial"])
        self.batches = context._batches = int(saved["batches"])
        self.close()
        seeds.restore_random_state(saved["random"])

    def _open_gradients(self) -> list[list[torch.Tensor | None] | None]:
        """Gradients that wait for further batches before their optimizer steps; those of an optimizer that has just stepped
        are spent."""
        return [
            None
            if index in self.context._stepped
            else [None if parameter.grad is None else parameter.grad.detach().cpu() for parameter in _parameters(optimizer)]
            for index, optimizer in enumerate(self.context._optimizers)
        ]

    def _restore_gradients(self, saved: list[list[torch.Tensor | None] | None]) -> None:
        for optimizer, gradients in zip(self.context._optimizers, saved, strict=True):
            for parameter, gradient in zip(_parameters(optimizer), gradients or [], strict=False):
                if gradient is not None:
                    parameter.grad = gradient.to(parameter.device)

    def close(self) -> None:
        self._batches_ahead = None  # the loader's workers end with its iterator


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def prepare_torch(local_slots: int, deterministic: bool) -> torch.device:
    """Sets torch up for this process, and returns the device to train on. A CPU slot is one thread."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Only a warning where torch has no deterministic kernel: training is worth more than the last bit.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a debugging aid that costs time
        torch.backends.cudnn.benchmark = False
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if "OMP_NUM_THREADS" not in os.environ:  # which torch obeys, and which a user may set
        torch.set_num_threads(local_slots)
    return torch.device("cpu")
