"""What a trial is given: hyperparameters, the device, and the wrappers that let the harness save and restore its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from tenuto.workers.harness.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.lr_scheduler import LRScheduler

M = TypeVar("M", bound=nn.Module)
O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741


class PyTorchTrialContext:
    """Given to `PyTorchTrial.__init__`. Wrap every model, optimizer, scheduler and scaler there, always in the same order:
    that is how a resumed trial finds its state again."""

    def __init__(self, info: TrialInfo, device: torch.device) -> None:
        self.device = device
        self._info = info
        self._models: list[nn.Module] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._schedulers: list[LRScheduler] = []
        self._scalers: list[Any] = []
        self._stepped: set[int] = set()
        """Optimizers that stepped during the batch being trained."""
        self._batches = 0
        self._epoch_batches: int | None = None

    # What the experiment says.

    def get_hparam(self, name: str) -> Any:
        """The value of a hyperparameter; `optimizer.momentum` reaches into a group. Raises UserError with the names there are."""
        value: Any = self._info.hyperparameters
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                known = ", ".join(sorted(_names(self._info.hyperparameters))) or "none"
                raise UserError(f"there is no hyperparameter {name!r}; the experiment has: {known}.")
            value = value[part]
        return value

    def get_hparams(self) -> dict[str, Any]:
        return dict(self._info.hyperparameters)

    def get_experiment_config(self) -> dict[str, Any]:
        return dict(self._info.config)

    def get_experiment_id(self) -> int:
        return self._info.experiment_id

    def get_trial_id(self) -> str:
        return self._info.trial_id

    def get_trial_seed(self) -> int:
        """Seed generators of your own from it. The global ones are seeded already."""
        return self._info.trial_seed

    def get_global_batch_size(self) -> int:
        """The hyperparameter `global_batch_size`: records per step over all slots."""
        return int(self.get_hparam("global_batch_size"))

    def get_per_slot_batch_size(self) -> int:
        return self.get_global_batch_size()

    # What the harness keeps.

    def wrap_model(self, model: M) -> M:
        """Moves the model to the device. Wrap it before you make its optimizer."""
        if not isinstance(model, nn.Module):
            raise UserError(f"wrap_model was given {type(model).__name__}; it needs a torch.nn.Module.")
        model = model.to(self.device)
        self._models.append(model)
        return model

    def wrap_optimizer(self, optimizer: O) -> O:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UserError(f"wrap_optimizer was given {type(optimizer).__name__}; it needs a torch.optim.Optimizer.")
        index = len(self._optimizers)
        self._optimizers.append(optimizer)
        optimizer.register_step_post_hook(lambda *_: self._stepped.add(index))
        return optimizer

    def wrap_lr_scheduler(
        self,
        scheduler: Any,
        step_mode: LRScheduler.StepMode = LRScheduler.StepMode.STEP_EVERY_EPOCH,
        frequency: int = 1,
    ) -> Any:
        """The harness steps it after every `frequency` epochs or batches, or never with MANUAL_STEP."""
        if not callable(getattr(scheduler, "step", None)) or not callable(getattr(scheduler, "state_dict", None)):
            raise UserError(f"wrap_lr_scheduler was given {type(scheduler).__name__}; it needs a torch learning-rate scheduler.")
        self._schedulers.append(LRScheduler(scheduler, step_mode, frequency))
        return scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """A torch.amp.GradScaler: its scale is saved with the checkpoint."""
        self._scalers.append(scaler)
        return scaler

    # What train_batch calls.

    def to_device(self, data: Any) -> Any:
        """Tensors in nested dicts, lists and tuples, moved to the device. Batches arrive there already."""
        return to_device(data, self.device)

    def backward(self, loss: torch.Tensor, **arguments: Any) -> None:
        loss.backward(**arguments)  # type: ignore[no-untyped-call]

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Iterable[nn.Parameter]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any | None = None,
    ) -> None:
        """Steps, and clears the gradients unless told not to. `clip_grads` gets the optimizer's parameters, unscaled."""
        if clip_grads is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            clip_grads(parameter for group in optimizer.param_groups for parameter in group["params"])
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
            self._stepped.update(index for index, known in enumerate(self._optimizers) if known is optimizer)
        else:
            optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    def current_train_batch(self) -> int:
        """Batches trained before this one, since the trial began."""
        return self._batches

    def current_train_epoch(self) -> int:
        return self._batches // self._epochs_known()

    def is_epoch_start(self) -> bool:
        return self._batches % self._epochs_known() == 0

    def is_epoch_end(self) -> bool:
        return (self._batches + 1) % self._epochs_known() == 0

    def _epochs_known(self) -> int:
        if self._epoch_batches is None:
            raise UserError("epochs are known once the training data loader is built; ask in train_batch.")
        return self._epoch_batches


def to_device(data: Any, device: torch.device) -> Any:
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if callable(getattr(data, "to", None)):
        return data.to(device)
    if isinstance(data, Mapping):
        return {key: to_device(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(value, device) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(to_device(value, device) for value in data)
    return data


def _names(space: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for name, value in space.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
