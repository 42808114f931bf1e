"""Keepers of nodes for all pools that the record names, and the ticks by which idle and late nodes are judged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from nats.aio.client import Client

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Provisioner, ProvisionerError
from tenuto.services.launcher.commands import TickNodes
from tenuto.services.launcher.effects.nodes import POLL_SECONDS, NodeKeeper
from tenuto.services.launcher.policies.provisioning.nodes import ProvidedPool, provided
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import ProvisionedPool

logger = logging.getLogger(__name__)


class Keepers:
    def __init__(
        self,
        loop: ServiceLoop[State],
        log: EventLog,
        bus: Client,
        clock: Clock,
        open_provisioner: Callable[[str, Provisioning], Provisioner],
    ) -> None:
        """`open_provisioner`: opens the provisioner of a pool."""
        self._loop, self._log, self._bus, self._clock, self.open_provisioner = loop, log, bus, clock, open_provisioner
        self._keepers: dict[tuple[str, int], NodeKeeper] = {}
        """Keepers by pool and generation."""
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._known: dict[str, ProvisionedPool] = {}
        self._seldom: dict[str, Seldom] = {}
        self._unopened: dict[tuple[str, int], str] = {}
        """Reason why there is no keeper, by pool and generation."""
        loop.on_folded(self._folded)

    async def run(self) -> None:
        """Keeps nodes until cancelled. Nothing is started or stopped before the launcher has read the log to the end it had."""
        try:
            await self._loop.wait_ready()
            while True:
                try:
                    await self._loop.wait_position(await self._log.head())
                    await self._tick()
                except LogUnavailable as error:
                    logger.warning("nodes are not judged now: %s", error)
                self._match()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in list(self._tasks.values()):
                await stop_task(task)

    def of(self, pool: str) -> list[NodeKeeper]:
        """Keepers of a pool, the newest settings first."""
        return [self._keepers[key] for key in sorted(self._keepers, reverse=True) if key[0] == pool]

    def trouble_of(self, pool: str) -> str:
        """Reason why the pool's provider cannot be asked, or starts nothing, just now; empty: it can."""
        unopened = [self._unopened[key] for key in sorted(self._unopened, reverse=True) if key[0] == pool]
        return next((said for said in (*unopened, *(keeper.trouble for keeper in self.of(pool))) if said), "")

    def _folded(self, state: State, events: Sequence[Event]) -> None:
        for (name, _), keeper in self._keepers.items():
            if state.pools.get(name) is not self._known.get(name):
                keeper.wake()
        self._known = dict(state.pools)

    async def _tick(self) -> None:
        if not self._loop.state.pools:
            return
        tick = TickNodes(self._clock.new_id(), self._clock.now_us())
        if self._loop.core.decide(self._loop.state, tick):
            await self._loop.submit(tick)

    def _match(self) -> None:
        """Keeps one running keeper per provisioner on record: removes others and those that ended, and starts missing ones."""
        wanted = {(item.pool, item.generation): item for item in provided(self._loop.state)}
        for key in [key for key in self._keepers if key not in wanted or self._tasks[key].done()]:
            self._tasks.pop(key).cancel()
            del self._keepers[key]
        self._unopened = {key: said for key, said in self._unopened.items() if key in wanted}
        for key, item in wanted.items():
            if key not in self._keepers:
                self._open(key, item)
            if key in self._keepers:
                self._keepers[key].busy = item.nodes > 0 or item.current

    def _open(self, key: tuple[str, int], item: ProvidedPool) -> None:
        try:
            provisioner = self.open_provisioner(item.pool, item.provisioning)
        except ProvisionerError as error:
            self._unopened[key] = str(error)
            self._seldom.setdefault(item.pool, Seldom(logger)).warn(f"pool {item.pool} gets no nodes: {error}")
            return
        self._unopened.pop(key, None)
        self._keepers[key] = NodeKeeper(self._loop, self._log, self._bus, self._clock, item, provisioner)
        self._tasks[key] = asyncio.create_task(self._keepers[key].run(), name=f"nodes-{item.pool}-{item.generation}")
