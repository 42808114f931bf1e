"""`pytorch.PyTorchTrialContext`: Tenuto's, with the names and rules of Determined where they differ."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from tenuto.workers.determined import facts
from tenuto.workers.determined.distributed import DistributedContext
from tenuto.workers.determined.pytorch.schedulers import SteppedAsThere
from tenuto.workers.errors import UserError
from tenuto.workers.harness import determined_names
from tenuto.workers.harness.batch_sizes import PerSlotBatchSize
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.context import PyTorchTrialContext as OurContext
from tenuto.workers.pytorch.lr_scheduler import LRScheduler


class PyTorchExperimentalContext:
    """`context.experimental`."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context

    def use_amp(self) -> None:
        """Same as `optimizations.mixed_precision: fp16`: losses are scaled, and steps run under torch.autocast."""
        self._context._use_amp()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Nothing to do: torch's own loaders are taken as they are."""

    def disable_auto_to_device(self) -> None:
        """Nothing to do: moving a batch that is there already changes nothing."""


class PyTorchTrialContext(OurContext):
    _by_determineds_rules: ClassVar[bool] = True
    _names_elsewhere: ClassVar[Mapping[str, str]] = {
        **determined_names.TRIAL_CONTEXT,
        "configure_apex_amp": "apex is not used; write optimizations.mixed_precision: fp16 or bf16, or experimental.use_amp()",
        "get_tensorboard_path": "metrics are recorded by the cluster; write what else you need into a file of a checkpoint",
        "get_tensorboard_writer": "metrics are recorded by the cluster; report numbers among the metrics",
        "env": "use get_experiment_config and get_hparams",
        "set_profiler": "use torch.profiler in your own code",
    }

    def __init__(self, info: TrialInfo, device: torch.device, hparams: Mapping[str, Any] | None = None) -> None:
        """`hparams`: given to `pytorch.init`, in the place of the trial's own."""
        super().__init__(info, device)
        self._hparams = copy.deepcopy(dict(info.hyperparameters if hparams is None else hparams))  # a script may change them
        self._asked_per_slot = True  # each training loader holds the batch of one slot
        gathers = None if self._ranks is None else self._ranks.objects
        self.distributed = DistributedContext.of_environment(gathers) if self.slots > 1 else DistributedContext()
        self.experimental = PyTorchExperimentalContext(self)
        self._found = facts.current()
        self._trainer: Any = None
        """Trainer that `pytorch.init` made."""

    @property
    def models(self) -> list[torch.nn.Module]:
        return self._models

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return self._optimizers

    @property
    def lr_schedulers(self) -> list[LRScheduler]:
        return self._schedulers

    def get_hparams(self) -> dict[str, Any]:
        return self._hparams

    def get_hparam(self, name: str) -> Any:
        if name not in self._hparams:
            known = ", ".join(sorted(self._hparams)) or "none"
            raise UserError(f"there is no hyperparameter {name!r}; the experiment has: {known}.")
        return self._hparams[name]

    def get_global_batch_size(self) -> int:
        """The hyperparameter, rounded down to a multiple of the slots."""
        return self._per_slot() * self.slots

    def get_per_slot_batch_size(self) -> int:
        return PerSlotBatchSize(self._per_slot())

    def _per_slot(self) -> int:
        size = int(self.get_hparam("global_batch_size")) // self.slots
        if size < 1:
            raise UserError(f"global_batch_size must be at least the number of slots, which is {self.slots}.")
        return size

    def _batch_of_all_slots(self, per_slot: int) -> int:
        return per_slot * self.slots

    def get_experiment_config(self) -> dict[str, Any]:
        return facts.experiment_config(self._info.config)

    def get_data_config(self) -> dict[str, Any]:
        found = facts.carried(self._info.config).get("data")
        return dict(found) if isinstance(found, Mapping) else {}

    def get_trial_id(self) -> int:  # type: ignore[override]
        """Number of the trial in the whole cluster."""
        return self._info.experiment_id * facts.TRIALS_MAX + self._info.trial_number

    def get_initial_batch(self) -> int:
        return 0 if self._found is None else self._found.steps_completed

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Nothing to do: the cluster records metrics, and writes no files for TensorBoard."""

    def get_enable_tensorboard_logging(self) -> bool:
        return False

    def autocast_forward_pass(self, to_wrap: torch.nn.Module) -> torch.nn.Module:
        """Runs the model's forward pass under torch.autocast; its floating-point results are float32."""
        forward, device = to_wrap.forward, self.device.type

        def under_autocast(*arguments: Any, **named: Any) -> Any:
            with torch.autocast(device):
                return _in_float32(forward(*arguments, **named))

        to_wrap.forward = under_autocast
        return to_wrap

    def _use_amp(self) -> None:
        if self._own_scaler is None:
            self._precision = torch.float16
            self._own_scaler = self._keep_scaler(torch.amp.GradScaler(self.device.type))

    def _make_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int) -> LRScheduler:
        return SteppedAsThere(lr_scheduler, step_mode, frequency, self._optimizations.aggregation_frequency)


def _in_float32(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.float() if output.is_floating_point() else output
    if isinstance(output, Mapping):
        return {name: _in_float32(value) for name, value in output.items()}
    return type(output)(map(_in_float32, output)) if type(output) in (list, tuple) else output
