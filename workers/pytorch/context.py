"""The context of a PyTorch trial: hyperparameters, the device, and wrappers that let the harness save and restore its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from tenuto.schemas.config.experiment import Distributed, Optimizations
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.horovod import rendezvous
from tenuto.workers.pytorch.devices import to_device
from tenuto.workers.pytorch.distributed import fsdp
from tenuto.workers.pytorch.distributed.batch_rules import BatchRules, LearningRateScaling
from tenuto.workers.pytorch.gradients import configured_clip, mark_used, open_gradients
from tenuto.workers.pytorch.lr_scheduler import LRScheduler
from tenuto.workers.pytorch.position import PositionedContext
from tenuto.workers.pytorch.reducers import FunctionReducer, MetricReducer, WrappedReducer, check_reducer

if TYPE_CHECKING:
    from tenuto.workers.launch.gang import Gang
    from tenuto.workers.pytorch.distributed.fsdp import Shards
    from tenuto.workers.pytorch.distributed.gradients import GradientSync
    from tenuto.workers.pytorch.distributed.ranks import Ranks

M = TypeVar("M", bound=nn.Module)
O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741
_NOT_IN_PARTS = (
    ", but an elastic trial's batches are trained in parts on fewer slots: call context.{}, which knows of them, or set "
    "distributed.micro_batches: false."
)
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class PyTorchTrialContext(PositionedContext):
    """Argument of `PyTorchTrial.__init__`. Wrap every model, optimizer, scheduler and scaler there, always in the same order:
    a resumed trial finds their state by it."""

    def __init__(self, info: TrialInfo, device: torch.device) -> None:
        super().__init__(info)
        self.device = device
        self._models: list[nn.Module] = []
        self._optimizers: list[torch.optim.Optimizer] = []
        self._schedulers: list[LRScheduler] = []
        self._scalers: list[Any] = []
        self._reducers: list[WrappedReducer] = []
        self._clears_gradients = False
        """True: a step is followed at once by clearing the gradients."""
        self._stepped: set[int] = set()
        """Ids of optimizers that stepped during the batch being trained."""
        self._scaled: list[Any] = []
        """Scalers that stepped, and were not updated, during the batch being trained."""
        self._ranks: Ranks | None = None
        self._gradients: GradientSync | None = None
        self._shards: Shards | None = None
        """Collector of the parts of models that are divided among the ranks (fsdp), for a checkpoint."""
        self._share = (1, 1)
        """Records of this rank in the batch being trained (or in the part of it), and of the whole batch."""
        self._parts_left = 0
        """Number of further parts of this rank's share of the batch being trained."""
        self._weighed = False
        """True: the losses of this batch carry the weight of the share."""
        distributed = Distributed.model_validate(info.config.get("distributed") or {})
        self._rules = BatchRules.of(info.config, self.slots)
        self._scaling = LearningRateScaling(distributed, self.slots)
        self._in_step = self._asked_for_step = self._in_part = False
        self._sync_batch_norm = distributed.sync_batch_norm
        self._optimizations = Optimizations.model_validate(info.config.get("optimizations") or {})
        self._precision = PRECISIONS.get(self._optimizations.mixed_precision or "")
        self._own_scaler: Any = None
        if self._precision is torch.float16:
            self._own_scaler = self._keep_scaler(torch.amp.GradScaler(device.type))
        if info.gang is not None:
            self._open_ranks(info.gang)

    def _open_ranks(self, gang: Gang) -> None:
        from tenuto.workers.pytorch.distributed.gradients import GradientSync
        from tenuto.workers.pytorch.distributed.ranks import Ranks

        if rendezvous.is_wanted(self._info.config):
            from tenuto.workers.pytorch.distributed.horovod_ranks import HorovodRanks

            self._ranks = HorovodRanks(gang, self.device)
        else:
            self._ranks = Ranks(gang, self.device)
        if (self._info.config.get("distributed") or {}).get("strategy") == "fsdp":
            if self._precision is torch.float16:
                raise UserError("distributed.strategy: fsdp does not scale losses, as fp16 needs; use mixed_precision: bf16.")
            self._shards = fsdp.Shards(self._ranks)
        else:
            self._gradients = GradientSync(self._ranks, self.steps_optimizers, self._gradient_factor)

    def _gradient_factor(self) -> float:
        """Weight of this rank in the sum of gradients. The weights add up to 1, so a second backward pass in the same batch
        may average again what was averaged."""
        assert self._ranks is not None
        records, total = self._share
        return 1 / self._ranks.size if self._weighed else records / total

    # Objects that the harness saves.

    def wrap_model(self, model: M) -> M:
        """Moves the model to the device. Wrap it before you make its optimizer."""
        if not isinstance(model, nn.Module):
            raise UserError(f"wrap_model was given {type(model).__name__}; it needs a torch.nn.Module.")
        model = model.to(self.device)
        if self._sync_batch_norm and self._ranks is not None:
            self._synchronize(model, self._ranks)
        if self._shards is not None and self._ranks is not None:
            fsdp.divide(model, self._ranks)
        self._models.append(model)
        return model

    def _synchronize(self, model: nn.Module, ranks: Ranks) -> None:
        from tenuto.workers.pytorch.distributed.batch_norm import Link, synchronize

        link = Link(ranks, lambda: self._share[0] > 0, self._gradient_factor, lambda: self._in_part)
        synchronize(model, link)

    def wrap_optimizer(
        self,
        optimizer: O,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> O:
        """Wraps an optimizer. Call it once for each. The other arguments are Determined's: any number of backward passes in a
        step is allowed, gradients are sent uncompressed, and `optimizations.average_aggregated_gradients` applies to all.
        Raises UserError for other values."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UserError(f"wrap_optimizer was given {type(optimizer).__name__}; it needs a torch.optim.Optimizer.")
        averages = self._optimizations.average_aggregated_gradients
        if average_aggregated_gradients not in (None, averages) and self._optimizations.aggregation_frequency > 1:
            raise UserError(
                f"wrap_optimizer(average_aggregated_gradients={average_aggregated_gradients}) differs from the configuration; "
                f"set optimizations.average_aggregated_gradients: {str(not averages).lower()}, which is for all optimizers."
            )
        if fp16_compression:
            raise UserError("wrap_optimizer(fp16_compression=True): gradients are not compressed here; leave it out.")
        self._optimizers.append(optimizer)
        optimizer.register_step_post_hook(self._after_step)
        self._scaling.attach(optimizer, lambda: self.learning_rate_factor)
        if self._gradients is not None:
            self._gradients.attach(optimizer)
        return optimizer

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._stepped.add(id(optimizer))
        if self._cuts and not self._in_step:
            raise UserError(f"train_batch calls step() of {type(optimizer).__name__}{_NOT_IN_PARTS.format('step_optimizer')}")
        if not self._clears_gradients:
            mark_used(optimizer)
        if self._precision is not None:
            torch.clear_autocast_cache()  # it holds copies of the weights as they were before this step

    def wrap_lr_scheduler(
        self,
        lr_scheduler: Any,
        step_mode: LRScheduler.StepMode = LRScheduler.StepMode.STEP_EVERY_EPOCH,
        frequency: int = 1,
    ) -> Any:
        """Wraps a scheduler. The harness steps it after every `frequency` epochs, batches or optimizer steps, or never with
        MANUAL_STEP."""
        wrapped = self._make_lr_scheduler(lr_scheduler, step_mode, frequency)
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and not any(one is optimizer for one in self._optimizers):
            raise UserError("wrap_lr_scheduler needs a scheduler of a wrapped optimizer: call wrap_optimizer before.")
        self._schedulers.append(wrapped)
        return lr_scheduler

    def _make_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int) -> LRScheduler:
        return LRScheduler(lr_scheduler, step_mode, frequency)

    def wrap_scaler(self, scaler: Any) -> Any:
        """Wraps a torch.amp.GradScaler of your own: its scale is saved with the checkpoint. Pass it to `step_optimizer`; it is
        updated once, at the end of the batch, unless you do it."""
        if not callable(getattr(scaler, "step", None)) or not callable(getattr(scaler, "update", None)):
            raise UserError(f"wrap_scaler was given {type(scaler).__name__}; it needs a torch.amp.GradScaler.")
        if self._own_scaler is not None:
            raise UserError("optimizations.mixed_precision: fp16 scales losses already; remove it, or the scaler of your own.")
        return self._keep_scaler(scaler)

    def _keep_scaler(self, scaler: Any) -> Any:
        update = scaler.update

        def update_once(*arguments: Any, **named: Any) -> None:
            self._scaled = [other for other in self._scaled if other is not scaler]
            update(*arguments, **named)

        scaler.update = update_once
        self._scalers.append(scaler)
        return scaler

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Any:
        """Wraps a reducer, and returns it; for a function, an object with `update(value)`: the function is called with the
        list of all values. `name`: the metric; None if the reducer returns a dict of metrics."""
        if not isinstance(reducer, MetricReducer):
            if isinstance(reducer, type) or not callable(reducer):
                raise UserError(
                    f"wrap_reducer was given {reducer!r}; it needs a function or an instance of pytorch.MetricReducer."
                )
            reducer = FunctionReducer(reducer)
        if any(item.reducer is reducer for item in self._reducers):
            raise UserError(f"wrap_reducer was given the same {type(reducer).__name__} twice; wrap it once, or make another one.")
        check_reducer(reducer)
        reducer.reset()
        self._reducers.append(WrappedReducer(reducer, name, for_training, for_validation))
        return reducer

    # Methods for train_batch.

    def to_device(self, data: Any) -> Any:
        """Tensors in nested dicts, lists and tuples, moved to the device. Batches are there already."""
        return to_device(data, self.device)

    def autocast(self) -> AbstractContextManager[Any]:
        """Context for `optimizations.mixed_precision`. `train_batch` and `evaluate_batch` run inside it already."""
        if self._precision is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self._precision)

    def backward(self, loss: torch.Tensor, **arguments: Any) -> None:
        """`loss.backward(**arguments)`, with accumulation and mixed precision as `optimizations` configures them."""
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
        """Steps, and clears the gradients unless told not to. With `optimizations.aggregation_frequency` it steps at the last
        batch of each group, and does nothing before.

        `clip_grads` gets the optimizer's parameters, with unscaled gradients; it replaces the clipping of `optimizations`.
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

    def steps_optimizers(self) -> bool:
        """True if `step_optimizer` steps in this batch; false while gradients are accumulated, and in all parts of a batch but
        the last."""
        return self._parts_left == 0 and (self._batches + 1) % self._optimizations.aggregation_frequency == 0

    def _begin_batch(self) -> None:
        self._stepped.clear()
        if self._ranks is not None:
            if self._gradients is not None:
                self._gradients.prepare()
            self._ranks.gang.progress.begin()
            self._share_buffers()

    @property
    def _cuts(self) -> bool:
        """True if batches may be trained in parts, on some number of slots. Settings that do not allow that are refused on
        every number, and not only when the trial shrinks."""
        return self._rules.slots_most is not None

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
            raise UserError(f"train_batch calls backward() of its loss{_NOT_IN_PARTS.format('backward')}")

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

    @property
    def learning_rate_factor(self) -> float:
        """Factor of the optimizers' learning rate when they step now, as `distributed.learning_rate_scaling` configures it.
        The learning rate that the optimizer holds, and a scheduler sets, does not include it."""
        return self._scaling.factor(self._batches, self._epoch_batches)
