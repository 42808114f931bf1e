"""The tracker's composition root: the deciding loop, the lanes of reports, and the deletion of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import asyncpg
from nats.aio.client import Client

from tenuto.kernel.clock import Clock
from tenuto.kernel.commit_sizes import CommitSizes
from tenuto.kernel.effects import Effects
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.feed import EventFeed
from tenuto.kernel.ingress import Ingress
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring.sampling import MonitoredState
from tenuto.kernel.pools import open_pool
from tenuto.kernel.report_tokens import load_report_tokens
from tenuto.kernel.settings import Settings
from tenuto.kernel.storage.stores import stores_of
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import run_together
from tenuto.schemas.events.request import ExperimentDeleted
from tenuto.schemas.events.trial import CheckpointDeleted
from tenuto.schemas.subjects import Lane
from tenuto.services.tracker.core import TrackerCore
from tenuto.services.tracker.effects import DeletionEvents, delete_checkpoint
from tenuto.services.tracker.effects.deleting import delete_experiment
from tenuto.services.tracker.effects.sweeping import Sweeper
from tenuto.services.tracker.handlers import ReportReceiver
from tenuto.services.tracker.state import State

POOL_CONNECTIONS_MAX = 5
"""One for each lane, and one for what is left."""
QUERY_SECONDS_MAX = 30.0


class Tracker:
    def __init__(
        self, loop: ServiceLoop[State], lanes: Mapping[Lane, Ingress], effects: Effects, sweeper: Sweeper, pool: asyncpg.Pool
    ) -> None:
        self.loop = loop
        self._sweeper = sweeper
        self._lanes, self._effects, self._pool = lanes, effects, pool

    def watched(self) -> MonitoredState:
        return self.loop.watched().adding({"effects": self._effects.sample})

    async def run(self) -> None:
        """Runs the service until cancelled."""
        try:
            await run_together(
                loop=self.loop.run(),
                effects=self._effects.run(),
                sweeper=self._sweeper.run(),
                **{name: lane.run() for name, lane in self._lanes.items()},
            )
        finally:
            self._pool.terminate()


async def build(
    settings: Settings, log: EventLog, bus: Client, clock: Clock, *, feed: EventFeed | None = None, checks: bool = False
) -> Tracker:
    """`feed` and `checks` are for tests: where the events come from, and whether invariants are asserted after each commit."""
    pool = await open_pool(settings.database_url, POOL_CONNECTIONS_MAX, QUERY_SECONDS_MAX)
    loop = ServiceLoop(TrackerCore(), log, feed or StreamFeed(log, bus), clock, settings, checks=checks)
    stores = stores_of(settings.shared_directory, settings.stores_file)
    receiver = ReportReceiver(loop, log, pool, clock, await load_report_tokens(pool))
    first = CommitSizes()
    lanes: dict[Lane, Ingress] = {
        "tracker": Ingress("tracker", settings, bus, pool, receiver.record, first),
        "overflow": Ingress("overflow", settings, bus, pool, receiver.record, CommitSizes(yields_to=first)),
        "metrics": Ingress("metrics", settings, bus, pool, receiver.store_metrics),
        "logs": Ingress("logs", settings, bus, pool, receiver.store_logs),
    }
    remembered = DeletionEvents()
    loop.on_folded(remembered.note)
    delete = partial(delete_checkpoint, log, stores, remembered)
    delete_all = partial(delete_experiment, log, stores, pool)
    effects = Effects("tracker", {CheckpointDeleted.TYPE: delete, ExperimentDeleted.TYPE: delete_all}, settings, log, pool)
    sweeper = Sweeper(log, loop, clock, stores)
    return Tracker(loop, lanes, effects, sweeper, pool)
