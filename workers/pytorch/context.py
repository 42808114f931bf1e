"""The context of a PyTorch trial: hyperparameters, the device, and the steps of a training batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.devices import to_device
from tenuto.workers.pytorch.gradients import configured_clip, open_gradients
from tenuto.workers.pytorch.wrapping import NOT_IN_PARTS, WrappingContext


class PyTorchTrialContext(WrappingContext):
    """Argument of `PyTorchTrial.__init__`. Wrap every model, optimizer, scheduler and scaler there, always in the same order:
    a resumed trial finds their state by it."""

    def to_device(self, data: Any) -> Any:
        """Tensors in nested dicts, lists and tuples (`data`), moved to the device. Batches are there already."""
        return to_device(data, self.device)

    def autocast(self) -> AbstractContextManager[Any]:
        """Context for `optimizations.mixed_precision`. `train_batch` and `evaluate_batch` run inside it already."""
        if self._precision is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self._precision)

    def backward(self, loss: torch.Tensor, **arguments: Any) -> None:
        """`loss.backward(**arguments)`, with accumulation and mixed precision as `optimizations` configures them, and averaged
        over the slots of the trial. `loss`: mean over the records of the batch.

            def train_batch(self, batch):
                x, y = batch
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                self.context.backward(loss)
                self.context.step_optimizer(self.optimizer)
                return loss
        """
        optimizations = self._optimizations
        if self._cuts and self._asked_for_step:
            raise UserError(
                "train_batch goes on with another loss after a step: trained in parts, as an elastic trial's batches are on "
                "fewer slots, it would learn something else. Set distributed.micro_batches: false."
            )
        if self._ranks is not None or self._cuts:
            loss = self._weigh(loss)
        if self._own_scaler is not None:
            loss = self._own_scaler.scale(loss)
        if optimizations.average_aggregated_gradients and optimizations.aggregation_frequency > 1:
            loss = loss / optimizations.aggregation_frequency
        if self._precision is None:
            loss.backward(**arguments)  # type: ignore[no-untyped-call]
        else:
            with torch.autocast(self.device.type, enabled=False):  # the backward pass uses the types of the forward one
                loss.backward(**arguments)  # type: ignore[no-untyped-call]

    def _weigh(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss with the weight of the share: with shares of different sizes, the mean over a batch is the mean over the
        ranks of these."""
        self._weighed = True
        records, total = self._share
        scale = records * self.slots / total
        return loss if scale == 1 else loss * scale

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Iterable[nn.Parameter]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any | None = None,
    ) -> None:
        """Steps the `optimizer`, and clears the gradients unless told not to (`auto_zero_grads`). With
        `optimizations.aggregation_frequency` it steps at the last batch of each group, and does nothing before.

        `clip_grads`: called with the optimizer's parameters, which have unscaled gradients, instead of the clipping of
        `optimizations`; None: that one. `scaler`: a wrapped one of your own; None: that of `optimizations.mixed_precision`, if it
        has one.

            def train_batch(self, batch):
                x, y = batch
                loss = torch.nn.functional.mse_loss(self.model(x), y)
                self.context.backward(loss)
                self.context.step_optimizer(self.optimizer, clip_grads=lambda found: torch.nn.utils.clip_grad_norm_(found, 1.0))
                return loss
        """
        self._asked_for_step = True
        if not self.steps_optimizers():
            return
        scaler = scaler if scaler is not None else self._own_scaler
        clip = clip_grads if clip_grads is not None else configured_clip(self._optimizations)
        if clip is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            clip([parameter for group in optimizer.param_groups for parameter in group["params"]])
        self._clears_gradients, self._in_step = auto_zero_grads, True
        try:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
        finally:
            self._clears_gradients = self._in_step = False
        if scaler is not None and not any(other is scaler for other in self._scaled):
            self._scaled.append(scaler)
        if auto_zero_grads:
            optimizer.zero_grad()

    def _begin_batch(self) -> None:
        self._stepped.clear()
        if self._ranks is not None:
            if self._gradients is not None:
                self._gradients.prepare()
            self._ranks.gang.progress.begin()
            self._share_buffers()

    def _begin_part(self, records: int, total: int, left: int) -> None:
        """Called before each call of `train_batch`. `left`: further parts of this batch."""
        self._share, self._parts_left = (records, total), left
        self._weighed = self._asked_for_step = False
        self._in_part = True

    def _end_part(self) -> None:
        self._in_part = False
        if not self._cuts or self._weighed or self._optimizations.aggregation_frequency > 1:
            return
        if any(gradient is not None for part in open_gradients(self._optimizers, torch.Tensor.detach) for gradient in part):
            raise UserError(f"train_batch calls backward() of its loss{NOT_IN_PARTS.format('backward')}")

    def _share_buffers(self) -> None:
        """Copies rank 0's running statistics to all ranks, as torch's own data-parallel training does."""
        if self._ranks is not None:
            with self._ranks.waiting():
                self._ranks.broadcast([buffer for model in self._models for buffer in model.buffers()])

    def _end_batch(self, trained: int = 1) -> None:
        """Called after `train_batch`, before the position moves on by this number."""
        for scaler in list(self._scaled):
            scaler.update()
        if self._ranks is not None:
            self._ranks.gang.progress.end()
        self._batches += trained
        for item in self._schedulers:
            stepped = id(getattr(item.scheduler, "optimizer", None)) in self._stepped
            item.after_batch(self._batches, self._epoch_batches, stepped, trained)
