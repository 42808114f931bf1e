"""Names that trials and scripts for Determined use and Tenuto does not have, with their replacements. Names that both have,
and differences of meaning, are listed in docs/from-determined.md."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.workers.errors import UserError

_TENSORBOARD = (
    "there is none: numbers that are returned or reported are recorded; for anything else, make a SummaryWriter of your own"
)

TRIAL_CONTEXT: Mapping[str, str] = {
    "distributed": "use context.rank and context.slots; data, gradients and metrics of the ranks are brought together for you",
    "env": "use context.get_experiment_config(), get_hparams() and get_trial_seed()",
    "get_data_config": "put these values under `hyperparameters`, and read them with context.get_hparam(...)",
    "get_initial_batch": "use context.current_train_batch()",
    "get_tensorboard_path": _TENSORBOARD,
    "get_tensorboard_writer": _TENSORBOARD,
    "get_enable_tensorboard_logging": _TENSORBOARD,
    "set_enable_tensorboard_logging": _TENSORBOARD,
    "experimental": "set optimizations.mixed_precision in the configuration, and leave the call out",
    "configure_apex_amp": "set optimizations.mixed_precision in the configuration, and leave the call out",
    "autocast_forward_pass": "set optimizations.mixed_precision in the configuration, and leave the call out",
    "models": "keep what context.wrap_model returned in your trial",
    "optimizers": "keep what context.wrap_optimizer returned in your trial",
    "lr_schedulers": "keep what context.wrap_lr_scheduler returned in your trial",
    "profiler": "use torch.profiler in your own code",
    "set_profiler": "use torch.profiler in your own code",
}
RUN: Mapping[str, str] = {
    "train": "use run.report_training(...) and run.report_validation(...)",
    "searcher": "use run.operations()",
    "preempt": "use run.should_preempt()",
    "distributed": "use run.rank, run.slots and run.local_rank; ranks talk by torch.distributed or what you use else",
    "start": "use `with tenuto.init() as run:`",
    "info": "use run.hyperparameters, run.config, run.trial_id and run.checkpoint.latest",
    "profiler": "use your framework's profiler",
}
CHECKPOINTS: Mapping[str, str] = {
    "store_path": "use `with run.checkpoint.save(steps) as directory:`",
    "upload": "use `with run.checkpoint.save(steps) as directory:`",
    "restore_path": "use `with run.checkpoint.restore() as directory:`",
    "download": "use `with run.checkpoint.restore() as directory:`",
    "get_metadata": "use run.checkpoint.latest.metadata",
    "delete": "checkpoint_policy and checkpoint_storage.save_* say which checkpoints are kept",
}
OPERATION: Mapping[str, str] = {
    "report_completed": "use run.report_validation(operation.steps, metrics)",
    "report_progress": "use run.report_progress(steps)",
}


class UnknownName(UserError, AttributeError):
    """An AttributeError that says what to write instead."""


def missing(names: Mapping[str, str], what: str, name: str) -> AttributeError:
    """Error for a `__getattr__`. `what`: the object as users call it, such as `context`."""
    if name in names:
        return UnknownName(f"{what} has no {name!r}, as it has in Determined: {names[name]}.")
    return AttributeError(f"{what} has no attribute {name!r}")
