"""What a run of a trial depends on besides its code, configuration and seeds: the environment it ran in and the data it read."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field

from tenuto.schemas.base import Model

ENVIRONMENT_BYTES_MAX = 256 * 1024
"""Of one environment as JSON: thousands of packages fit, and it stays well under what a bus message may hold."""
DATA_NAMES_MAX = 64
"""Data that one trial declares: files and directories, not samples."""
GIT_DIFF_CHARACTERS_MAX = 100_000
"""Of uncommitted changes. What is longer is cut and marked; the packed code itself is kept whole anyway."""
OVERRIDES_MAX = 200
IMPORT_SCRIPT, IMPORT_RECORD, IMPORT_PLACE = "tenuto_import.py", "tenuto_record", "tenuto_place.txt"
"""In the model directory of an imported run (made without a cluster), beside its own code: what reports it, the record, or where
the record is."""
SOURCES_MAX = 1_000
"""Trials that one experiment goes on with: they stand in one event."""


VARIABLES_OF_THE_RUN = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR", "TORCHELASTIC_*", "TF_CONFIG",
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
)  # fmt: skip
"""Environment variables that differ for every slot or allocation (which are on record elsewhere), or name a place on the
node. They change no result. `*`: all that begin so."""


def is_of_the_run(variable: str) -> bool:
    return any(variable == name or (name[-1] == "*" and variable.startswith(name[:-1])) for name in VARIABLES_OF_THE_RUN)


class Gpu(Model):
    name: str
    memory_gib: int


class Hardware(Model):
    """The class of machine. What differs between two machines of one class (host name, serial numbers) is left out."""

    machine: str
    """Such as x86_64."""
    cpu_model: str
    cpu_cores: int
    memory_gib: int
    gpus: tuple[Gpu, ...] = ()


class EnvironmentRecord(Model):
    """Equal for two runs that could not tell their environments apart; so its hash names it."""

    format: Literal[1] = 1
    python: str
    platform: str
    """Operating system, kernel and C library."""
    packages: dict[str, str]
    """Every installed distribution: version by name."""
    loaded: tuple[str, ...] = ()
    """Those of them that the training process had imported when it was about to train."""
    hardware: Hardware
    drivers: dict[str, str] = {}
    threads: dict[str, str] = {}
    numerics: dict[str, str] = {}
    """Number formats and kernels in use: default dtype, dtypes of the parameters, mixed precision, deterministic kernels."""
    variables: dict[str, str] = {}
    """Environment variables that matter. Secrets are masked."""

    def digest(self) -> str:
        """SHA-256 (hex) of the record, whatever order its mappings were filled in.

        Without what was imported: a process that was forked from a warm one has imported more, and computes the same.
        """
        document = json.dumps(self.model_dump(mode="json", exclude={"loaded"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(document.encode()).hexdigest()


class DataFingerprint(Model):
    """Declared data at the moment a run started with it."""

    name: str = Field(max_length=1024)
    """As the trial names it; by default the path as it was given."""
    path: str
    """Absolute, on the node of the run."""
    fingerprint: str
    """SHA-256 (hex)."""
    method: Literal["content", "sampled", "listing"]
    """content: every byte is in it. sampled: names, sizes, and parts of each file. listing: names and sizes only."""
    files: int = Field(ge=0)
    size_bytes: int = Field(ge=0)


class KnownData(Model):
    """What was recorded of declared data before, for a run that starts now."""

    name: str
    fingerprint: str
    recorded_by: str
    """The trial that recorded it."""


class GitState(Model):
    commit: str
    branch: str = ""
    remote: str = ""
    """Without user name and password."""
    diff: str = Field(default="", max_length=GIT_DIFF_CHARACTERS_MAX)
    """Uncommitted changes of the model directory."""
    diff_truncated: bool = False
    untracked: tuple[str, ...] = ()


class Origin(Model):
    """How an experiment came to be submitted."""

    command_line: str = Field(default="", max_length=10_000)
    overrides: dict[str, str] = Field(default={}, max_length=OVERRIDES_MAX)
    """What was set on the command line over the configuration file: value as JSON, by path such as `hyperparameters.lr`."""
    git: GitState | None = None
    seed_drawn: bool = False
    """Nobody chose the seed that the configuration holds: it is that of a run without a cluster, which drew one."""


class TrialSource(Model):
    """A trial's last checkpoint in an earlier experiment, which the trial of the same number goes on from."""

    trial_number: int
    seed: int
    checkpoint_id: str
    location: str
    batches: int


class Parent(Model):
    """The experiment that this one was made from, and what of it counts here."""

    relation: Literal["reproduction", "fork", "continuation"]
    experiment_id: int
    trial_id: str | None = None
    """The trial that is reproduced."""
    sources: tuple[TrialSource, ...] = Field(default=(), max_length=SOURCES_MAX)
    trusted_user: str = Field(default="", exclude_if=lambda value: not value)
    """Whose checkpoints `sources` are, where that is somebody else: the submitter agreed that their pickled state is loaded."""
    data: tuple[KnownData, ...] = Field(default=(), max_length=DATA_NAMES_MAX)
    """Its data, so that a change since then is noticed."""

    def source_of(self, trial_number: int, seed: int) -> TrialSource | None:
        """None where the search now draws another trial of that number: a checkpoint of other hyperparameters is no start."""
        return next((item for item in self.sources if (item.trial_number, item.seed) == (trial_number, seed)), None)
