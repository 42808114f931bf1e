"""The experiment configuration. Strict: an unknown or wrong field is refused with its path (see `errors.py`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.config.entrypoint import script_of
from tenuto.schemas.config.hyperparameters import Hyperparameters, bare_constants
from tenuto.schemas.config.length import Length
from tenuto.schemas.config.log_policies import LOG_POLICIES_MAX, LogPolicy
from tenuto.schemas.config.resources import Resources, SlotRange
from tenuto.schemas.config.searchers import GridSearcher, Searcher
from tenuto.schemas.config.space import check_space
from tenuto.schemas.config.storage import CheckpointStorage

RESERVED_VARIABLE_PREFIX = "TENUTO_"


def _entrypoint(value: str) -> str:
    script_of(value)
    return value


SECRET_NAME_PATTERN = r"^[a-z][a-z0-9_.-]{0,62}$"
SecretReference = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_.-]{0,62}/)?[a-z][a-z0-9_.-]{0,62}$")]


class Environment(Model):
    variables: dict[str, str] = {}
    """Environment variables of the worker processes. Everybody can read them; `NAME: {secret: wandb}` is short for an entry of
    `secrets`."""
    secrets: dict[str, SecretReference] = Field(default={}, exclude_if=lambda value: not value)
    """Environment variables whose values are secrets of the user (`tenuto secret set`): variable -> name of the secret. Values
    are never recorded, and hidden in what workers print."""

    @model_validator(mode="before")
    @classmethod
    def _secrets_among_variables(cls, value: Any) -> Any:
        given = value.get("variables") if isinstance(value, Mapping) else None
        if not isinstance(given, Mapping) or not any(isinstance(item, Mapping) for item in given.values()):
            return value
        secrets = value.get("secrets") or {}
        if not isinstance(secrets, Mapping):
            raise ValueError("secrets must be a mapping of variables to names of secrets, such as {WANDB_API_KEY: wandb}")
        secrets = dict(secrets)
        for name, item in given.items():
            if isinstance(item, Mapping):
                if set(item) != {"secret"} or not isinstance(item["secret"], str):
                    raise ValueError(
                        f"variables.{name} must be text, or {{secret: NAME}} with the name of a secret that `tenuto secret set "
                        "NAME` made; a secret itself never stands in a configuration"
                    )
                secrets[name] = item["secret"]
        plain = {name: item for name, item in given.items() if not isinstance(item, Mapping)}
        return {**value, "variables": plain, "secrets": secrets}

    @model_validator(mode="after")
    def _once(self) -> Environment:
        for name in self.secrets:
            if name in self.variables:
                raise ValueError(f"{name} is given twice, as a variable and as a secret; leave one out")
        return self

    @field_validator("variables", "secrets")
    @classmethod
    def _not_reserved(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name.startswith(RESERVED_VARIABLE_PREFIX):
                raise ValueError(f"{name} is reserved: names that begin with {RESERVED_VARIABLE_PREFIX} are Tenuto's own")
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} is not a name of an environment variable")
        return value


class Optimizations(Model):
    """How the Trial API carries out `context.backward` and `context.step_optimizer`."""

    aggregation_frequency: int = Field(default=1, ge=1, le=1_000_000)
    """Batches whose gradients are summed before the optimizers step."""
    average_aggregated_gradients: bool = True
    """Divide the summed gradients by `aggregation_frequency`, so that the learning rate keeps its meaning."""
    mixed_precision: Literal["bf16", "fp16"] | None = None
    """Run training and evaluation under torch.autocast with this type; fp16 also scales the losses. None: full precision."""
    clip_grad_norm: float | None = Field(default=None, gt=0)
    """Before each step, scale an optimizer's gradients down to this 2-norm. None: not at all."""
    clip_grad_value: float | None = Field(default=None, gt=0)
    """Before each step, cut each element of the gradients to plus or minus this. None: not at all."""


class Distributed(Model):
    """How a trial trains on several slots."""

    strategy: Literal["ddp", "fsdp", "horovod", "multi_worker_mirrored"] = "ddp"
    """ddp: each slot holds the whole model (a Keras trial on TensorFlow: its MultiWorkerMirroredStrategy). fsdp: parameters of a
    PyTorch trial are divided among the slots. horovod: gradients are averaged by Horovod, and scripts may call `hvd.init()`.
    multi_worker_mirrored: TF_CONFIG is set, for scripts with TensorFlow's `tf.distribute.MultiWorkerMirroredStrategy`."""
    progress_seconds_max: float = Field(default=1800.0, gt=0, le=1e6)
    """A rank that does not get on with a step for so long is hung, and the trial starts again from its last checkpoint. Once some
    steps are done, 20 times the longest of them is enough, but at least 10 seconds."""
    link_seconds_max: float = Field(default=10.0, ge=2, le=3600, exclude_if=lambda value: value == 10.0)
    """The network between two agents of a trial is cut when nothing came through it for so long, and the trial starts again from
    its last checkpoint: ten beats, which a busy machine delays by a second or two and a lost packet by less."""
    global_batch_size: Literal["keep", "scale"] = Field(default="keep", exclude_if=lambda value: value == "keep")
    """Of a PyTorch trial. keep: the batch of the DataLoader is that of the whole trial, on any number of slots. scale: it is that
    of one slot, and a step of N slots trains N of them."""
    micro_batches: bool = Field(default=True, exclude_if=lambda value: value)
    """With `keep` and elastic slots: a slot holds no more records at once than with the most slots; a larger share is trained in
    parts, whose gradients add up. False: the whole share at once."""
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = Field(default="none", exclude_if=lambda value: value == "none")
    """With `scale`: optimizers step with their learning rate times the number of slots (linear), or times its square root."""
    learning_rate_warmup: Length | None = Field(default=None, exclude_if=lambda value: value is None)
    """With `learning_rate_scaling`: where that factor rises, it does so evenly over this length. None: at once."""
    sync_batch_norm: bool = Field(default=False, exclude_if=lambda value: not value)
    """Of a PyTorch trial: batch normalization takes its statistics from the records of all slots. False: from those of one."""

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
    """Everything random in search and training follows from it. None: drawn at submission and recorded."""
    exact: bool = True
    """Train with deterministic kernels and a fixed number of threads, so that a resumed or repeated trial has the same bits.
    False: faster on some GPUs. `reproducibility: exact` says the same as `{exact: true}`."""

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, value: Any) -> Any:
        return {"exact": True} if value == "exact" else value


def _is_empty(value: list[Any]) -> bool:
    """Left out when written, so that what was recorded before the field existed is written back as it was."""
    return not value


NAME_CHARACTERS_MAX = 256


def default_name(entrypoint: str | None) -> str:
    """Of an experiment without one: the class, or the script without its ending."""
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
"""What a period may be, beside a length."""


class ExperimentConfig(Model):
    name: str = Field(default=DEFAULT_NAME, min_length=1, max_length=NAME_CHARACTERS_MAX)
    """Left out: that of the class or script of `entrypoint`."""
    description: str = Field(default="", max_length=10_000)
    """For people; shown by `tenuto exp describe`."""
    labels: list[str] = Field(default=[], max_length=100)
    """Words of your own, by which experiments are found again."""
    entrypoint: Annotated[str, AfterValidator(_entrypoint)]
    """`module:Class` in the model directory: the Trial class. Or a script there that uses the Core API, such as `train.py --fast`
    or `python -m package.train`, also as a list of its words."""
    hyperparameters: Hyperparameters = {}
    """The search space by name: ranges and lists of values, constants, and groups of these."""
    searcher: Searcher
    """Which configurations are tried, how long, and by which metric they are compared."""
    resources: Resources = Resources()
    """What a trial needs, and its place among others."""
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    """best: keep each trial's best and latest checkpoint. all: keep every one. none: only what pausing and resuming need."""
    checkpoint_storage: CheckpointStorage = CheckpointStorage()
    """Which store checkpoints go to, and how many are kept."""
    min_checkpoint_period: Length | None = None
    """Save at least this often. None, or 0: at validations only."""
    checkpoint_period_minutes: float | None = Field(default=None, gt=0, le=100_000)
    """Save also when so many minutes have passed since the last checkpoint. None: not by the clock."""
    min_validation_period: Length | None = None
    """Validate at least this often. None, or 0: only at the lengths that the search compares."""
    log_period: Length = Length(batches=10)
    """Report training metrics this often, averaged over the batches between."""
    max_restarts: int = Field(default=5, ge=0, le=1000)
    """Times a trial starts again after an error of its own code. Infrastructure failures do not count. So often, but at least
    five times, it also starts again when its workers die by a signal or hang, with no checkpoint or validation between."""
    log_policies: list[LogPolicy] = Field(default=[], max_length=LOG_POLICIES_MAX, exclude_if=_is_empty)
    """What follows when a worker prints a line that matches a pattern."""
    environment: Environment = Environment()
    """What the worker processes find around them."""
    optimizations: Optimizations = Optimizations()
    """How a step is made: gradients gathered, number formats, clipping."""
    reproducibility: Reproducibility = Reproducibility()
    """Seed, and whether the same bits must come out again."""
    distributed: Distributed = Field(default=Distributed(), exclude_if=lambda value: value == Distributed())
    """How several slots train one trial."""

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
        """As one text; None: it is none."""
        words = data.get("entrypoint")
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
            return shlex.join(words)
        return words if isinstance(words, str) else None

    @field_validator("min_validation_period", "min_checkpoint_period", mode="before")
    @classmethod
    def _none_is_none(cls, value: Any) -> Any:
        """A period of 0 says "not at all", as in Determined."""
        return None if value in NO_LENGTH else value

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _bare_constants(cls, value: Any) -> Any:
        return bare_constants(value)

    @model_validator(mode="after")
    def _grid_has_counts(self) -> ExperimentConfig:
        if isinstance(self.searcher, GridSearcher):
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
