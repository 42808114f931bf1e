"""Ways to Slurm's controller, which differ in the road and not in what they do: its commands, or its REST daemon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tenuto.services.launcher.adapters.provisioners.slurm.jobs import SlurmJob
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings

WARNING_SECONDS = 120
"""Time before a job's end at which Slurm warns its agent, too, should its time limit have been changed meanwhile."""
ARRAY_INDEX_MAX = 1_000
"""Highest index of an array where nothing else is said: Slurm's own default."""


@dataclass(frozen=True)
class JobSubmission:
    """A job of one machine, or an array of such. A job is started once: a second run of it would find neither a token nor its
    name free. None of it is secret."""

    name: str
    comment: str
    output: str
    """File for what it prints, as a pattern of sbatch."""
    script: str
    settings: JobSettings
    array: str = ""
    """Indexes, such as 0-3,7. Empty: one job."""


class Controller(Protocol):
    """Every call is bounded in time, and raises ProvisionerError."""

    async def jobs(self) -> Sequence[SlurmJob]:
        """All jobs of this account that are nodes, of whatever cluster and pool."""
        ...

    async def submit(self, wanted: JobSubmission) -> str:
        """Id of the job. All tasks of an array are taken, or none is."""
        ...

    async def cancel(self, ids: Sequence[str]) -> None:
        """Ends jobs and tasks of arrays. Those that have ended are no error."""
        ...

    async def array_index_max(self) -> int:
        """Highest index of an array. 0: Slurm takes no arrays."""
        ...

    async def close(self) -> None: ...
