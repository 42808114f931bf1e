"""Nodes as jobs of Slurm, as an ordinary user has them: the port of provisioners by Slurm's commands, or its REST daemon.

Each node is a job of its own, or a task of an array, which is one: then each starts, ends and is given back without the others,
as the scheduler wants it, and a gang is gathered by the scheduler from what has joined. All or none of a group means here that
all jobs are taken or none is: those that wait in Slurm's queue count as coming. One job over several machines would start them
together, but could not give one of them back. Nodes that are requested together, or by many at the same time, are submitted as an
array, because Slurm's controller serves a whole site.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Finding, Order, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.groups import worst
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tenuto.services.launcher.adapters.provisioners.slurm import checks, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.by_commands import Commands
from tenuto.services.launcher.adapters.provisioners.slurm.by_rest import Rest
from tenuto.services.launcher.adapters.provisioners.slurm.controller import Controller, JobSubmission
from tenuto.services.launcher.adapters.provisioners.slurm.jobs import Row, SlurmJob
from tenuto.services.launcher.adapters.provisioners.slurm.node_directories import NodeDirectories
from tenuto.services.launcher.adapters.provisioners.slurm.settings import JobSettings, rest_settings_of, settings_of

logger = logging.getLogger(__name__)
T = TypeVar("T")
Prepared = tuple[Order, JobSettings]

TOGETHER_MAX = 4
"""Most submissions at once: Slurm's controller serves a whole site."""
FILES_SECONDS_MAX = 30.0
"""Longest time for files of the pool's directory: network file systems hang."""
LAST_WORDS_MAX = 5
"""Most agents of ended jobs whose last line is read with one answer."""


class SlurmProvisioner:
    """Provisioner of one pool of one cluster on Slurm."""

    def __init__(self, cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> None:
        """`secrets_directory`: where the token of Slurm's REST daemon is; its commands know this account."""
        self._cluster, self._pool, self._provisioning = cluster, pool, provisioning
        self._secrets = secrets_directory
        self._made: Controller | None = None

    @property
    def waits_long(self) -> bool:
        return True

    async def check(self) -> Sequence[Finding]:
        try:
            kinds = [(node_type, settings_of(self._provisioning, node_type)) for node_type in self._provisioning.node_types]
            controller = self._controller
        except (BadSetting, ProvisionerError) as error:
            return [Finding("settings", str(error))]
        rest = controller if isinstance(controller, Rest) else None
        return await checks.findings(self._cluster, self._pool, kinds, rest)

    async def start(self, orders: Sequence[Order]) -> None:
        places = self._places()
        missing = await self._missing(places, orders)
        rows = await self._rows(missing)
        slots = asyncio.Semaphore(TOGETHER_MAX)

        async def one(row: Sequence[Prepared]) -> None:
            async with slots:
                await self._submit(places, row)

        done = await asyncio.gather(*(one(row) for row in rows), return_exceptions=True)
        failures = [item for item in done if isinstance(item, BaseException)]
        if failures:
            begun = [
                order.node_id for row, item in zip(rows, done, strict=True) if item is None or _unknown(item) for order, _ in row
            ]
            await self._take_back(places, begun)
            raise worst(failures)

    async def start_groups(self, groups: Sequence[Sequence[Order]]) -> Sequence[ProvisionerError | None]:
        """Groups of nodes that are alike are submitted as one. If that is not taken, as where a quota has room for some of them,
        its halves are tried, down to one group; what is refused of one is refused of those behind it."""
        answers: list[ProvisionerError | None] = [None] * len(groups)
        kinds: dict[str, list[int]] = {}
        for place, group in enumerate(groups):
            kinds.setdefault(group[0].node_type.name, []).append(place)
        for places in kinds.values():
            waiting = [places]
            while waiting:
                tried = waiting.pop(0)
                try:
                    await self.start([order for place in tried for order in groups[place]])
                except ProvisionerError as error:
                    if len(tried) > 1 and error.kind != "unreachable":
                        waiting[:0] = [tried[: len(tried) // 2], tried[len(tried) // 2 :]]
                        continue
                    for place in (*tried, *(place for behind in waiting for place in behind)):
                        answers[place] = error
                    break
        return answers

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
        job_id = _number(node)
        # A job by its id and its tags: ids of long ago may be another's.
        mine = [job for job in await self._jobs() if job.node_id == node.node_id]
        if any(job.id == job_id and job.phase != "ended" for job in mine):
            await self._controller.cancel([job_id])
        if all(job.phase == "ended" for job in mine if job.id != job_id):
            await _in_thread(self._places().forget, [node.node_id])

    async def logs(self, node: RealNode, lines_max: int) -> str:
        return await _in_thread(self._places().tail, node.node_id, _number(node), max(1, lines_max))

    async def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.close()

    @property
    def _controller(self) -> Controller:
        """Raises ProvisionerError."""
        if self._made is None:
            try:
                rest = rest_settings_of(self._provisioning)
            except BadSetting as error:
                raise ProvisionerError(str(error), "refused") from error
            self._made = Commands() if rest is None else Rest(rest, self._secrets)
        return self._made

    def _settings(self, order: Order) -> JobSettings:
        """Raises ProvisionerError."""
        try:
            return settings_of(self._provisioning, order.node_type)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error

    def _places(self) -> NodeDirectories:
        """Raises ProvisionerError."""
        try:
            return NodeDirectories(
                settings_of(self._provisioning, self._provisioning.node_types[0]).directory, self._cluster, self._pool
            )
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error

    async def _jobs(self) -> list[SlurmJob]:
        """Raises ProvisionerError."""
        return [job for job in await self._controller.jobs() if (job.cluster, job.pool) == (self._cluster, self._pool)]

    async def _missing(self, places: NodeDirectories, orders: Sequence[Order]) -> list[Prepared]:
        """Orders whose nodes Slurm does not have. Raises ProvisionerError."""
        prepared = [(order, self._settings(order)) for order in orders]
        there = {job.node_id: job for job in await self._jobs()}
        await _in_thread(places.tidy, frozenset(name for job in there.values() for name in (job.node_id, job.id)))
        # A token may end before Slurm starts its job: those that still wait get the new one.
        renewed = [order for order in orders if order.node_id in there and there[order.node_id].phase == "pending"]
        if renewed:
            await _in_thread(places.prepare, {order.node_id: jobs.environment_text(order) for order in renewed})
        return [item for item in prepared if item[0].node_id not in there]

    async def _rows(self, missing: Sequence[Prepared]) -> list[list[Prepared]]:
        """Orders grouped so that each group can be the tasks of one array. Raises ProvisionerError."""
        index_max = await self._controller.array_index_max() if len(missing) > 1 else 0
        kinds: dict[JobSettings, dict[str, Prepared]] = {}
        for order, settings in missing:
            kinds.setdefault(settings, {})[order.node_id] = order, settings
        return [
            [alike[node_id] for node_id in row.node_ids]
            for alike in kinds.values()
            for row in jobs.rows(list(alike), index_max)
        ]  # fmt: skip

    async def _submit(self, places: NodeDirectories, row: Sequence[Prepared]) -> None:
        """Raises ProvisionerError."""
        nodes, settings = Row(tuple(order.node_id for order, _ in row)), row[0][1]
        await _in_thread(places.prepare, {order.node_id: jobs.environment_text(order) for order, _ in row})
        wanted = JobSubmission(
            nodes.name,
            jobs.comment_of(self._cluster, self._pool, nodes),
            places.output("" if nodes.array else nodes.node_ids[0]),
            jobs.script_of(nodes, str(places.own), settings),
            settings,
            nodes.array,
        )
        try:
            job = await self._controller.submit(wanted)
        except ProvisionerError as error:
            if not _unknown(error):
                await _in_thread(places.forget, nodes.node_ids)
            raise
        logger.info("%s: job %s", nodes.name, job)

    async def _take_back(self, places: NodeDirectories, node_ids: Sequence[str]) -> None:
        """Ends what was begun of a group. What cannot be ended now is found by `nodes`."""
        if not node_ids:
            return
        try:
            found = [job.id for job in await self._jobs() if job.node_id in node_ids and job.phase != "ended"]
            if found:
                await self._controller.cancel(found)
            await _in_thread(places.forget, node_ids)
        except ProvisionerError as error:
            logger.warning("jobs of a group that did not start whole could not be ended: %s", error)


def _number(node: RealNode) -> str:
    """Raises ProvisionerError."""
    if not re.fullmatch(r"\d{1,12}(_\d{1,12})?", node.provider_id):
        raise ProvisionerError(f"{visible(node.provider_id[:50])} is no job of Slurm.", "refused")
    return node.provider_id


def _unknown(error: BaseException) -> bool:
    return isinstance(error, ProvisionerError) and error.kind == "unreachable"


async def _in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Raises ProvisionerError."""
    try:
        async with asyncio.timeout(FILES_SECONDS_MAX):
            return await asyncio.to_thread(function, *arguments)
    except TimeoutError:
        raise ProvisionerError(f"The pool's directory does not answer within {FILES_SECONDS_MAX:.0f} s.", "unreachable") from None
    except OSError as error:
        raise ProvisionerError(f"The pool's directory cannot be used: {error.strerror or error}.", "refused") from error
