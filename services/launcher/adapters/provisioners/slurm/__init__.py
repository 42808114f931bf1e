"""Nodes as jobs of Slurm: the port of provisioners by `sbatch`, `squeue` and `scancel`, as an ordinary user has them.

Each node is a job of its own, also those of one group: then each starts, ends and is given back without the others, as the
scheduler wants it, and a gang is gathered by the scheduler from what has joined. All or none of a group means here that all jobs
are taken or none is: those that wait in Slurm's queue count as coming. One job over several machines would start them together,
but could not give one of them back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Finding, Order, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.slurm import checks, commands, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.jobs import Job
from tenuto.services.launcher.adapters.provisioners.slurm.places import Places
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings, settings_of
from tenuto.services.launcher.adapters.provisioners.values import BadSetting

logger = logging.getLogger(__name__)
T = TypeVar("T")

TOGETHER_MAX = 4
"""Most jobs of one group that are submitted at once: Slurm's controller serves a whole site."""
FILES_SECONDS_MAX = 30.0
"""Longest time for files of the pool's directory: network file systems hang."""
GONE = re.compile("invalid job id|already (completing|completed)", re.IGNORECASE)
"""What `scancel` says of a job that has ended, or is about to."""
LAST_WORDS_MAX = 5
"""Most agents of ended jobs whose last line is read with one answer."""


class SlurmProvisioner:
    """For one pool of one cluster."""

    def __init__(self, cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> None:
        """`secrets_directory`: not needed; Slurm knows this account."""
        self._cluster, self._pool, self._provisioning = cluster, pool, provisioning

    async def check(self) -> Sequence[Finding]:
        try:
            kinds = [(node_type, settings_of(self._provisioning, node_type)) for node_type in self._provisioning.node_types]
        except BadSetting as error:
            return [Finding("settings", str(error))]
        return await checks.findings(self._cluster, self._pool, kinds)

    async def start(self, orders: Sequence[Order]) -> None:
        prepared = [(order, self._settings(order)) for order in orders]
        known = await self._jobs()
        there = {job.node_id: job for job in known}
        places = self._places()
        await _in_thread(places.tidy, frozenset(there))
        for order, _ in prepared:  # a token may end before Slurm starts its job: those that still wait get the new one
            if order.node_id in there and there[order.node_id].phase == "pending":
                await _in_thread(places.prepare, order.node_id, jobs.environment_text(order))
        missing = [(order, settings) for order, settings in prepared if order.node_id not in there]
        slots = asyncio.Semaphore(TOGETHER_MAX)

        async def one(order: Order, settings: JobSettings) -> None:
            async with slots:
                await self._submit(places, order, settings)

        done = await asyncio.gather(*(one(*item) for item in missing), return_exceptions=True)
        failures = [item for item in done if isinstance(item, BaseException)]
        if failures:
            begun = [order.node_id for (order, _), item in zip(missing, done, strict=True) if item is None or _unknown(item)]
            await self._take_back(places, begun)
            raise _worst(failures)

    async def nodes(self) -> Sequence[RealNode]:
        found, places, left = [], self._places(), LAST_WORDS_MAX
        for job in await self._jobs():
            words = ""
            if job.state == "FAILED" and left > 0:
                left -= 1
                words = (await _in_thread(places.tail, job.node_id, job.id, 1)).strip()
            found.append(job.node(words))
        return found

    async def stop(self, node: RealNode) -> None:
        # A job by its id and its name: ids of long ago may be another's.
        said = await commands.run("scancel", f"--user={os.geteuid()}", f"--name={node.node_id}", _number(node))
        if said.code != 0 and not GONE.search(said.errors):
            raise said.error(f"end job {node.provider_id}")
        others = [job for job in await self._jobs() if job.node_id == node.node_id and job.id != node.provider_id]
        if all(job.phase == "ended" for job in others):
            await _in_thread(self._places().forget, node.node_id)

    async def logs(self, node: RealNode, lines_max: int) -> str:
        return await _in_thread(self._places().tail, node.node_id, _number(node), max(1, lines_max))

    async def close(self) -> None:
        pass

    def _settings(self, order: Order) -> JobSettings:
        """Raises ProvisionerError."""
        try:
            return settings_of(self._provisioning, order.node_type)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error

    def _places(self) -> Places:
        """Raises ProvisionerError."""
        try:
            return Places(settings_of(self._provisioning, self._provisioning.node_types[0]).directory, self._cluster, self._pool)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error

    async def _jobs(self) -> list[Job]:
        """Raises ProvisionerError."""
        said = await commands.run(
            "squeue", "--noheader", "--array", f"--user={os.geteuid()}", "--states=all", f"--format={jobs.FORMAT}"
        )
        if said.code != 0:
            raise ProvisionerError(f"Slurm does not list jobs: {said.words}.", "unreachable")
        found = jobs.read(said.output.splitlines())
        return [job for job in found if (job.cluster, job.pool) == (self._cluster, self._pool)]

    async def _submit(self, places: Places, order: Order, settings: JobSettings) -> None:
        """Raises ProvisionerError."""
        await _in_thread(places.prepare, order.node_id, jobs.environment_text(order))
        options = jobs.options_of(self._cluster, self._pool, order.node_id, str(places.node(order.node_id)), settings)
        script = jobs.script_of(order.node_id, str(places.environment(order.node_id)), settings)
        said = await commands.run("sbatch", "--parsable", *options, text=script)
        if said.code != 0:
            error = said.error(f"take the job of node {order.node_id}")
            if not _unknown(error):
                await _in_thread(places.forget, order.node_id)
            raise error
        logger.info("node %s is job %s", order.node_id, visible(said.output.strip()[:50]))

    async def _take_back(self, places: Places, node_ids: Sequence[str]) -> None:
        """Ends what was begun of a group. What cannot be ended now is found by `nodes`."""
        if not node_ids:
            return
        try:
            found = [job for job in await self._jobs() if job.node_id in node_ids and job.phase != "ended"]
            if found:
                said = await commands.run("scancel", f"--user={os.geteuid()}", *(job.id for job in found))
                commands.succeeded(said, "end jobs of a group that was not had whole")
            for node_id in node_ids:
                await _in_thread(places.forget, node_id)
        except ProvisionerError as error:
            logger.warning("jobs of a group that did not start whole could not be ended: %s", error)


def _number(node: RealNode) -> str:
    """Raises ProvisionerError."""
    if not (node.provider_id.isascii() and node.provider_id.isdecimal()):
        raise ProvisionerError(f"{visible(node.provider_id[:50])} is no job of Slurm.", "refused")
    return node.provider_id


def _unknown(error: BaseException) -> bool:
    return isinstance(error, ProvisionerError) and error.kind == "unreachable"


def _worst(failures: Sequence[BaseException]) -> BaseException:
    """The one that says most: first what no later try would change."""
    order = {"refused": 0, "quota": 1, "capacity": 2, "unreachable": 3}
    return min(failures, key=lambda item: order[item.kind] if isinstance(item, ProvisionerError) else -1)


async def _in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Raises ProvisionerError."""
    try:
        async with asyncio.timeout(FILES_SECONDS_MAX):
            return await asyncio.to_thread(function, *arguments)
    except TimeoutError:
        raise ProvisionerError(f"The pool's directory does not answer within {FILES_SECONDS_MAX:.0f} s.", "unreachable") from None
    except OSError as error:
        raise ProvisionerError(f"The pool's directory cannot be used: {error.strerror or error}.", "refused") from error
