"""Inputs of a trial's run besides its code, configuration and seeds: the environment it ran in and the data it read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model

ENVIRONMENT_BYTES_MAX = 256 * 1024
"""Size limit of one environment as JSON: thousands of packages fit, and a bus message may hold much more."""
DATA_NAMES_MAX = 64
"""Most data sources that one trial declares: files and directories, not samples."""
GIT_DIFF_CHARACTERS_MAX = 100_000
"""Most characters of recorded uncommitted changes. A longer diff is cut and marked; the packed code itself is always kept
whole."""
OVERRIDES_MAX = 200
IMPORT_SCRIPT, IMPORT_RECORD, IMPORT_PLACE = "tenuto_import.py", "tenuto_record", "tenuto_place.txt"
"""Files in the model directory of an imported run (one made without a cluster), beside its own code: the script that reports
the run, the record of the run, or the path of that record."""
SOURCES_MAX = 1_000
"""Most trials that one continuation goes on with: all of them are listed in one event."""


VARIABLES_OF_THE_RUN = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR", "TORCHELASTIC_*", "TF_CONFIG",
    "TF_GRPC_REUSE_PORT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
)  # fmt: skip
"""Environment variables that differ for every slot or allocation (which are recorded elsewhere) or that name a path on the
node. They do not change results. `*`: every variable with this prefix."""


def is_of_the_run(variable: str) -> bool:
    return any(variable == name or (name[-1] == "*" and variable.startswith(name[:-1])) for name in VARIABLES_OF_THE_RUN)


LayerKind = Literal["template", "defaults"]


class ConfigLayer(Model):
    """A template, or the defaults of a workspace, that gave values to a configuration at its submission."""

    kind: LayerKind
    name: str = ""
    """Name of the template. Empty: the defaults of the workspace."""
    workspace: str = ""
    """Workspace that it is of. Empty: the whole cluster."""
    version: int = Field(ge=1)
    """Number of times it had been set by then."""
    digest: str
    """SHA-256 (hex) of what it said."""
    paths: tuple[str, ...] = ()
    """Values that it gave, such as `resources.pool`. All others are those of the configuration, or built in."""
    more: int = Field(default=0, ge=0, exclude_if=lambda value: not value)
    """Number of values that it gave and that are not listed, as the list would be too long."""


class Sent(Model):
    """Origin of a configuration: the text that was sent, and the layers merged under it."""

    layers: tuple[ConfigLayer, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Layers that were merged under the configuration that was sent, the most specific first. `config` is the merged one."""
    sent_hash: str = Field(default="", exclude_if=lambda value: not value)
    """SHA-256 (hex) of the configuration's text as it was sent. Empty: it was made from another experiment's."""


class Gpu(Model):
    name: str
    memory_gib: int


class Hardware(Model):
    """Class of a machine. Differences between two machines of one class (host name, serial numbers) are left out."""

    machine: str
    """Machine architecture, such as x86_64."""
    cpu_model: str
    cpu_cores: int
    memory_gib: int
    gpus: tuple[Gpu, ...] = ()


class EnvironmentRecord(Model):
    """Environment of a run. Two runs that cannot tell their environments apart have equal records, so the hash of the record
    names the environment."""

    format: Literal[1] = 1
    image: str = Field(default="", exclude_if=lambda value: not value)
    """Image of the container, with the digest that the agent found for its name. Empty: no container."""
    python: str
    platform: str
    """Operating system, kernel and C library."""
    packages: dict[str, str]
    """Version of every installed distribution, by name."""
    loaded: tuple[str, ...] = ()
    """Names of the packages that the training process had imported just before training."""
    hardware: Hardware
    drivers: dict[str, str] = {}
    threads: dict[str, str] = {}
    numerics: dict[str, str] = {}
    """Number formats and kernels in use: default dtype, dtypes of the parameters, mixed precision, deterministic kernels."""
    variables: dict[str, str] = {}
    """Environment variables that may change results. Secrets are masked."""

    def digest(self) -> str:
        """SHA-256 (hex) of the record, independent of the order of its mappings.

        Imported packages (`loaded`) are excluded: a process forked from a warm one has imported more, and computes the same.
        """
        document = json.dumps(self.model_dump(mode="json", exclude={"loaded"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(document.encode()).hexdigest()


class DataFingerprint(Model):
    """Declared data, as it was when a run started with it."""

    name: str = Field(max_length=1024)
    """Name given by the trial; by default the path as the trial wrote it."""
    path: str
    """Absolute path on the node of the run."""
    fingerprint: str
    """SHA-256 (hex) of the data by `method`."""
    method: Literal["content", "sampled", "listing"]
    """content: every byte is hashed. sampled: names, sizes, and parts of each file. listing: names and sizes only."""
    files: int = Field(ge=0)
    size_bytes: int = Field(ge=0)


class KnownData(Model):
    """Fingerprint recorded for declared data before, sent to a run that starts now."""

    name: str
    fingerprint: str
    recorded_by: str
    """Id of the trial that recorded it."""


class GitState(Model):
    commit: str
    branch: str = ""
    remote: str = ""
    """URL of the remote, without user name and password."""
    diff: str = Field(default="", max_length=GIT_DIFF_CHARACTERS_MAX)
    """Uncommitted changes in the model directory."""
    diff_truncated: bool = False
    untracked: tuple[str, ...] = ()


class Origin(Model):
    """Origin of a submission: command line, overrides, version control."""

    command_line: str = Field(default="", max_length=10_000)
    overrides: dict[str, str] = Field(default={}, max_length=OVERRIDES_MAX)
    """Values that the command line set over those of the configuration file: value as JSON, by path such as
    `hyperparameters.lr`."""
    git: GitState | None = None
    seed_drawn: bool = False
    """True: the seed in the configuration was drawn by a run without a cluster, and not chosen by a person."""


VALIDATIONS_KEPT_MAX = 32
"""Validations of one trial that go along with its checkpoint: some thousand trials share one event, and a search has at most ten
or so rungs."""


def hyperparameters_hash(hyperparameters: Mapping[str, Any]) -> str:
    """The same for equal values, also where a store has written a number another way (1e20 as a whole number)."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value if isinstance(value, (bool, str)) or value is None else float(value) + 0.0

    return hashlib.sha256(json.dumps(plain(hyperparameters), sort_keys=True).encode()).hexdigest()[:32]


class RecordedValidation(Model):
    """A validation that a trial of an earlier experiment reached, in that experiment."""

    length: int
    """Length trained, in the unit of `searcher.max_length`."""
    metric: float
    """Its searcher metric; finite."""


class TrialSource(Model):
    """Last checkpoint of a trial of an earlier experiment. The trial with the same number goes on from it."""

    trial_number: int
    seed: int
    checkpoint_id: str
    location: str
    batches: int
    validations: tuple[RecordedValidation, ...] = Field(
        default=(), max_length=VALIDATIONS_KEPT_MAX, exclude_if=lambda value: not value
    )
    """The trial's validations up to the checkpoint, by rising length: what it counts by at the rungs that it has passed."""
    hyperparameters_hash: str = Field(default="", exclude_if=lambda value: not value)
    """`hyperparameters_hash` of the trial. Empty: it is not known."""

    def is_of(self, trial_number: int, seed: int, hyperparameters: Mapping[str, Any]) -> bool:
        """True if the trial with this number is the same one. A search that learns from its results may draw another."""
        same = (self.trial_number, self.seed) == (trial_number, seed)
        return same and self.hyperparameters_hash in ("", hyperparameters_hash(hyperparameters))


class Parent(Model):
    """Parent experiment, from which this one was made, and the parts of it that are used here."""

    relation: Literal["reproduction", "fork", "continuation"]
    experiment_id: int
    trial_id: str | None = None
    """Id of the trial that is reproduced. None: the relation is another one, or all trials are reproduced."""
    sources: tuple[TrialSource, ...] = Field(default=(), max_length=SOURCES_MAX)
    trusted_user: str = Field(default="", exclude_if=lambda value: not value)
    """Owner of the checkpoints in `sources`, if not the submitter; the submitter agreed to load that user's pickled state.
    Empty: the submitter."""
    data: tuple[KnownData, ...] = Field(default=(), max_length=DATA_NAMES_MAX)
    """Data of the parent, so that a change since then is noticed."""

    def source_of(self, trial_number: int, seed: int, hyperparameters: Mapping[str, Any]) -> TrialSource | None:
        """Source of the trial with this number; None if the search now draws another trial for it. A checkpoint made with
        other hyperparameters is no start."""
        return next((item for item in self.sources if item.is_of(trial_number, seed, hyperparameters)), None)
