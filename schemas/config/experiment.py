"""The experiment configuration. Strict: an unknown or wrong field is refused with its path (see `errors.py`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.config.automation import RULES_MAX, AutomationRule
from tenuto.schemas.config.entrypoint import script_of
from tenuto.schemas.config.environment import Environment
from tenuto.schemas.config.hyperparameters import Hyperparameters, bare_constants
from tenuto.schemas.config.length import Length
from tenuto.schemas.config.log_policies import LOG_POLICIES_MAX, LogPolicy
from tenuto.schemas.config.resources import Resources, SlotRange
from tenuto.schemas.config.searchers import Searcher
from tenuto.schemas.config.space import check_space
from tenuto.schemas.config.storage import CheckpointStorage
from tenuto.schemas.names import NAME_PATTERN


def _entrypoint(value: str) -> str:
    script_of(value)
    return value


class Optimizations(Model):
    """Settings of a training step: how `context.backward` and `context.step_optimizer` are carried out."""

    aggregation_frequency: int = Field(default=1, ge=1, le=1_000_000)
    """Batches whose gradients are summed before the optimizers step."""
    average_aggregated_gradients: bool = True
    """Divide the summed gradients by `aggregation_frequency`, so that the learning rate keeps its meaning."""
    mixed_precision: Literal["bf16", "fp16"] | None = None
    """Run training and evaluation under torch.autocast with this type; fp16 also scales the losses. None: full precision."""
    clip_grad_norm: float | None = Field(default=None, gt=0)
    """Largest 2-norm of an optimizer's gradients; larger ones are scaled down to it before each step. None: no limit."""
    clip_grad_value: float | None = Field(default=None, gt=0)
    """Largest absolute value of a gradient's element; larger ones are clipped to it before each step. None: no limit."""


class Distributed(Model):
    """Settings of training on several slots."""

    strategy: Literal["ddp", "fsdp", "horovod", "multi_worker_mirrored"] = "ddp"
    """ddp: each slot holds the whole model (a Keras trial on TensorFlow: its MultiWorkerMirroredStrategy). fsdp: parameters of a
    PyTorch trial are divided among the slots. horovod: gradients are averaged by Horovod, and scripts may call `hvd.init()`.
    multi_worker_mirrored: TF_CONFIG is set, for scripts with TensorFlow's `tf.distribute.MultiWorkerMirroredStrategy`."""
    progress_seconds_max: float = Field(default=1800.0, gt=0, le=1e6)
    """Time after which a rank without progress in a step is taken for hung, and the trial starts again from its last
    checkpoint. Once some steps are done, 20 times the longest of them is enough, but at least 10 seconds."""
    link_seconds_max: float = Field(default=10.0, ge=2, le=3600, exclude_if=lambda value: value == 10.0)
    """Time after which the network between two agents of a trial is taken for cut if nothing came through it, and the trial
    starts again from its last checkpoint. The default is ten heartbeats: a busy machine delays one by a second or two, and a
    lost packet by less."""
    global_batch_size: Literal["keep", "scale"] = Field(default="keep", exclude_if=lambda value: value == "keep")
    """Batch size of a PyTorch trial. keep: the DataLoader's batch is that of the whole trial, on any number of slots. scale:
    it is the batch of one slot, so a step on N slots trains N of them."""
    micro_batches: bool = Field(default=True, exclude_if=lambda value: value)
    """Splitting of a slot's share of the batch, with `keep` and elastic slots. True: a slot never holds more records at once than
    it does with the most slots; a larger share is trained in parts, and the gradients summed. False: all at once."""
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = Field(default="none", exclude_if=lambda value: value == "none")
    """Factor of the optimizers' learning rate, with `scale`. linear: the number of slots. sqrt: its square root."""
    learning_rate_warmup: Length | None = Field(default=None, exclude_if=lambda value: value is None)
    """Length over which a growing factor of `learning_rate_scaling` rises evenly. None: it rises at once."""
    sync_batch_norm: bool = Field(default=False, exclude_if=lambda value: not value)
    """Batch normalization of a PyTorch trial. True: statistics are taken over the records of all slots. False: over those of
    one slot."""

    @model_validator(mode="after")
    def _rules_fit_together(self) -> Distributed:
        if self.learning_rate_scaling != "none" and self.global_batch_size == "keep":
            raise ValueError(
                "learning_rate_scaling needs global_batch_size: scale; with keep the batch of the trial is the same on any "
                "number of slots, and so is its learning rate"
            )
        if self.learning_rate_warmup is not None and self.learning_rate_scaling == "none":
            raise ValueError("learning_rate_warmup is for learning_rate_scaling: linear or sqrt; give one, or leave it out")
        return self


class Reproducibility(Model):
    experiment_seed: int | None = Field(default=None, ge=0, lt=2**63)
    """Seed of everything random in search and training. None: drawn at submission and recorded."""
    exact: bool = True
    """True: train with deterministic kernels and a fixed number of threads, so that a resumed or repeated trial computes the
    same bits. False: faster on some GPUs. `reproducibility: exact` is short for `{exact: true}`."""

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, value: Any) -> Any:
        return {"exact": True} if value == "exact" else value


def _is_empty(value: list[Any]) -> bool:
    """True for an empty list. Empty lists are left out when a configuration is written, so that one recorded before the field
    existed is written back unchanged."""
    return not value


NAME_CHARACTERS_MAX = 256
PROJECT_PATTERN = r"^[A-Za-z0-9_-]{0,63}$"


def default_name(entrypoint: str | None) -> str:
    """Name of an experiment whose configuration has none: the class, or the script without its ending."""
    entrypoint = entrypoint or ""
    try:
        script = script_of(entrypoint)
    except ValueError:
        return DEFAULT_NAME
    if script is None:
        name = entrypoint.rpartition(":")[2]
    else:
        name = PurePosixPath(script.file).stem if script.file is not None else str(script.module).rpartition(".")[2]
    return name[:NAME_CHARACTERS_MAX] or DEFAULT_NAME


DEFAULT_NAME = "experiment"
NO_LENGTH = ({"batches": 0}, {"epochs": 0})
"""Values of a period that mean "never"; they are accepted beside a length."""


class ExperimentConfig(Model):
    name: str = Field(default=DEFAULT_NAME, min_length=1, max_length=NAME_CHARACTERS_MAX)
    """Name of the experiment. Default: the class or script of `entrypoint`."""
    description: str = Field(default="", max_length=10_000)
    """Text for people; shown by `tenuto exp describe`."""
    labels: list[str] = Field(default=[], max_length=100)
    """Words of your own, for finding experiments again."""
    entrypoint: Annotated[str, AfterValidator(_entrypoint)]
    """Trial class in the model directory, as `module:Class`. Or a script there that uses the Core API, such as `train.py
    --fast` or `python -m package.train`, also as a list of its words."""
    hyperparameters: Hyperparameters = {}
    """Search space by name: ranges, lists of values, constants, and groups of these."""
    searcher: Searcher
    """Search method: which configurations are tried, for how long, and by which metric they are compared."""
    template: str | None = Field(default=None, pattern=NAME_PATTERN, exclude_if=lambda value: value is None)
    """Name of a template of the workspace or of the cluster: its values count where this configuration says nothing
    (docs/templates.md). What is recorded is the merged configuration, without this name. None: no template."""
    project: str = Field(default="", pattern=PROJECT_PATTERN, exclude_if=lambda value: not value)
    """Project of the workspace (`resources.workspace`) that the experiment belongs to. Empty: none."""
    resources: Resources = Resources()
    """Slots that a trial needs, where they may be, and the experiment's place among others."""
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    """best: keep each trial's best and latest checkpoint. all: keep every one. none: only what pausing and resuming need."""
    checkpoint_storage: CheckpointStorage = CheckpointStorage()
    """Store of the checkpoints, and how many of them are kept."""
    min_checkpoint_period: Length | None = None
    """Longest training between two checkpoints. None, or 0: saved at validations only."""
    checkpoint_period_minutes: float | None = Field(default=None, gt=0, le=100_000)
    """Most minutes between two checkpoints; an additional one is saved if they have passed. None: no limit by the clock."""
    min_validation_period: Length | None = None
    """Longest training between two validations. None, or 0: validated only at the lengths that the search compares."""
    log_period: Length = Length(batches=10)
    """Training between two reports of training metrics, which are averages over the batches between them."""
    max_restarts: int = Field(default=5, ge=0, le=1000)
    """Number of times a trial starts again after an error of its own code. Infrastructure failures do not count. The same
    error twice in a row, with no checkpoint or validation in between, ends it earlier (docs/errors.md). The same number, but at
    least five, limits restarts after workers died by a signal or hung without a checkpoint or validation in between."""
    log_policies: list[LogPolicy] = Field(default=[], max_length=LOG_POLICIES_MAX, exclude_if=_is_empty)
    """Patterns, and what is done when a worker prints a line that matches one."""
    environment: Environment = Environment()
    """Environment of the worker processes."""
    optimizations: Optimizations = Optimizations()
    """Settings of a training step: aggregation of gradients, number formats, clipping."""
    reproducibility: Reproducibility = Reproducibility()
    """Seed, and whether training must be exactly repeatable."""
    automation: list[AutomationRule] = Field(default=[], max_length=RULES_MAX, exclude_if=_is_empty)
    """Rules: what is done by itself when something happens to this experiment (docs/automation.md)."""
    distributed: Distributed = Field(default=Distributed(), exclude_if=lambda value: value == Distributed())
    """Settings of training on several slots."""

    @model_validator(mode="after")
    def _synchronized_batches_are_whole(self) -> ExperimentConfig:
        distributed, elastic = self.distributed, isinstance(self.resources.slots_per_trial, SlotRange)
        if distributed.sync_batch_norm and elastic and distributed.global_batch_size == "keep" and distributed.micro_batches:
            raise ValueError(
                "distributed.sync_batch_norm takes statistics from the whole batch, which an elastic trial trains in parts; set "
                "distributed.micro_batches: false, too"
            )
        return self

    @model_validator(mode="after")
    def _scaled_batches_are_not_gathered(self) -> ExperimentConfig:
        if self.distributed.global_batch_size == "scale" and self.optimizations.aggregation_frequency > 1:
            raise ValueError(
                "distributed.global_batch_size: scale makes the batch larger with each slot, so it does not go with "
                "optimizations.aggregation_frequency; give the DataLoader a larger batch_size instead"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, dict):
            if (entrypoint := cls.entrypoint_of(value)) is not None:
                value = {**value, "entrypoint": entrypoint}
            if value.get("name") is None:
                value = {"name": default_name(entrypoint), **{k: v for k, v in value.items() if k != "name"}}
        return value

    @staticmethod
    def entrypoint_of(data: Mapping[str, Any]) -> str | None:
        """The entrypoint as one text; None if the data has none."""
        words = data.get("entrypoint")
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
            return shlex.join(words)
        return words if isinstance(words, str) else None

    @field_validator("min_validation_period", "min_checkpoint_period", mode="before")
    @classmethod
    def _none_is_none(cls, value: Any) -> Any:
        """A period of 0 means "never", as in Determined."""
        return None if value in NO_LENGTH else value

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _bare_constants(cls, value: Any) -> Any:
        return bare_constants(value)

    @model_validator(mode="after")
    def _grid_has_counts(self) -> ExperimentConfig:
        if self.searcher.POINTS_ARE_GIVEN:
            _check_grid(self.hyperparameters, "hyperparameters")
        return self

    @model_validator(mode="after")
    def _space_fits_together(self) -> ExperimentConfig:
        check_space(self.hyperparameters, self.searcher)
        return self


def _check_grid(space: dict[str, Any], path: str) -> None:
    for name, value in space.items():
        where = f"{path}.{name}"
        if isinstance(value, dict):
            _check_grid(value, where)
        elif getattr(value, "type", "") in ("double", "log") and value.count is None and value.step is None:
            raise ValueError(f"{where}: the grid searcher needs `count`, the number of grid points along this range")
