"""Wrappers of a PyTorch trial's parts, by which the harness saves and restores them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from tenuto.schemas.config.experiment import Distributed, Optimizations
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.horovod import rendezvous
from tenuto.workers.pytorch.distributed import fsdp
from tenuto.workers.pytorch.distributed.batch_rules import BatchRules, LearningRateScaling
from tenuto.workers.pytorch.gradients import mark_used
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
NOT_IN_PARTS = (
    ", but an elastic trial's batches are trained in parts on fewer slots: call context.{}, which knows of them, or set "
    "distributed.micro_batches: false."
)
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class WrappingContext(PositionedContext):
    """Part of the context that takes models, optimizers, schedulers, scalers and reducers."""

    def __init__(self, info: TrialInfo, device: torch.device) -> None:
        super().__init__(info)
        self.device = device
        """Device of this process, to which models and batches are moved."""
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

    def wrap_model(self, model: M) -> M:
        """Moves the `model` to the device, and returns it: wrap it before you make its optimizer.

        Raises UserError for an object that is no `torch.nn.Module`.

            def __init__(self, context):
                self.model = context.wrap_model(torch.nn.Linear(1, 1))
        """
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
        """Wraps an `optimizer` of wrapped models, and returns it. Call it once for each.

        The other arguments are Determined's: any `backward_passes_per_step` is allowed, gradients are sent uncompressed
        (`fp16_compression`), and `average_aggregated_gradients` of `optimizations` applies to all. Raises UserError for other
        values, and for an object that is no torch.optim.Optimizer.

            def __init__(self, context):
                self.model = context.wrap_model(torch.nn.Linear(1, 1))
                self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))
        """
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
            raise UserError(f"train_batch calls step() of {type(optimizer).__name__}{NOT_IN_PARTS.format('step_optimizer')}")
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
        """Wraps a scheduler of a wrapped optimizer (`lr_scheduler`), and returns it. The harness steps it after every `frequency`
        epochs, batches or optimizer steps (`step_mode`), or never with MANUAL_STEP. Raises UserError for another object, an
        optimizer that is not wrapped, and a `frequency` below 1.

            def __init__(self, context):
                self.model = context.wrap_model(torch.nn.Linear(1, 1))
                self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
                halving = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=10, gamma=0.5)
                context.wrap_lr_scheduler(halving, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)
        """
        wrapped = self._make_lr_scheduler(lr_scheduler, step_mode, frequency)
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and not any(one is optimizer for one in self._optimizers):
            raise UserError("wrap_lr_scheduler needs a scheduler of a wrapped optimizer: call wrap_optimizer before.")
        self._schedulers.append(wrapped)
        return lr_scheduler

    def _make_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int) -> LRScheduler:
        return LRScheduler(lr_scheduler, step_mode, frequency)

    def wrap_scaler(self, scaler: Any) -> Any:
        """Wraps a torch.amp.GradScaler of your own (`scaler`), and returns it: its scale is saved with the checkpoint. Pass it to
        `step_optimizer`; it is updated once, at the end of the batch, unless you do it. Raises UserError for another object, and
        if `optimizations.mixed_precision` is fp16, which scales losses already."""
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
        """Wraps a `reducer`, and returns it; for a function, an object with `update(value)`: the function is called with the list
        of all values. `name`: the metric; None if the reducer returns a dict of metrics. `for_training`, `for_validation`: where
        it is used. Raises UserError for another object, and for one that is wrapped twice."""
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

    @property
    def _cuts(self) -> bool:
        """True if batches may be trained in parts, on some number of slots. Settings that do not allow that are refused on
        every number, and not only when the trial shrinks."""
        return self._rules.slots_most is not None

    def steps_optimizers(self) -> bool:
        """True if `step_optimizer` steps in this batch; false while gradients are accumulated, and in all parts of a batch but
        the last."""
        return self._parts_left == 0 and (self._batches + 1) % self._optimizations.aggregation_frequency == 0

    @property
    def learning_rate_factor(self) -> float:
        """Factor of the optimizers' learning rate when they step now, as `distributed.learning_rate_scaling` configures it.
        The learning rate that the optimizer holds, and a scheduler sets, does not include it."""
        return self._scaling.factor(self._batches, self._epoch_batches)
