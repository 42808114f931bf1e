"""Slurm by `sbatch`, `squeue` and `scancel`, as an ordinary user has them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.slurm import commands, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.controller import ARRAY_INDEX_MAX, WARNING_SECONDS, JobSubmission
from tenuto.services.launcher.adapters.provisioners.slurm.jobs import SlurmJob

logger = logging.getLogger(__name__)

GONE = re.compile("invalid job id|already (completing|completed)", re.IGNORECASE)
"""Messages of `scancel` about a job that has ended or is about to."""


class Commands:
    def __init__(self) -> None:
        self._index_max: int | None = None

    async def jobs(self) -> Sequence[SlurmJob]:
        said = await commands.run(
            "squeue", "--noheader", "--array", f"--user={os.geteuid()}", "--states=all", f"--format={jobs.FORMAT}"
        )
        if said.code != 0:
            raise ProvisionerError(f"Slurm does not list jobs: {said.words}.", "unreachable")
        return jobs.read(said.output.splitlines())

    async def submit(self, wanted: JobSubmission) -> str:
        said = await commands.run("sbatch", "--parsable", *options_of(wanted), text=wanted.script)
        if said.code != 0:
            raise said.error(f"take job {wanted.name}")
        return visible(said.output.strip().partition(";")[0][:50])

    async def cancel(self, ids: Sequence[str]) -> None:
        said = await commands.run("scancel", f"--user={os.geteuid()}", *ids)
        others = [line for line in said.errors.splitlines() if line.strip() and not GONE.search(line)]
        if said.code != 0 and (others or not said.errors.strip()):
            raise said.error("end the job" if len(ids) == 1 else "end jobs")

    async def array_index_max(self) -> int:
        if self._index_max is None:
            said = await commands.run("scontrol", "show", "config")
            found = re.search(r"^MaxArraySize\s*=\s*(\d+)", said.output, re.MULTILINE) if said.code == 0 else None
            self._index_max = max(0, int(found[1]) - 1) if found else ARRAY_INDEX_MAX
        return self._index_max

    async def close(self) -> None:
        pass


def options_of(wanted: JobSubmission) -> list[str]:
    """Options of sbatch."""
    return [
        *wanted.settings.options(),
        *([f"--array={wanted.array}"] if wanted.array else []),
        f"--job-name={wanted.name}",
        f"--comment={wanted.comment}",
        f"--output={wanted.output}",
        "--open-mode=append",
        "--input=/dev/null",
        "--nodes=1",
        "--ntasks=1",
        "--no-requeue",
        f"--signal=B:USR1@{WARNING_SECONDS}",
        "--export=ALL",  # the few variables that the commands are started with
        "--chdir=/",
    ]
