"""The launcher's composition root: the deciding loop, the lane of reports, heartbeats, leases and backlogs, and the assigner."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import asyncpg
from nats.aio.client import Client

from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.feed import EventFeed
from tenuto.kernel.ingress import Ingress
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring.sampling import MonitoredState
from tenuto.kernel.pools import open_pool
from tenuto.kernel.report_tokens import load_report_tokens
from tenuto.kernel.secrets import Secrets
from tenuto.kernel.settings import Settings
from tenuto.kernel.storage.stores import stores_of
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import run_together
from tenuto.schemas.node_questions import DemandStanding
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.backlog import Backlogs
from tenuto.services.launcher.adapters.gauges import Losses, backlog_of, nodes_of
from tenuto.services.launcher.adapters.provisioners import Provisioner, open_provisioner
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.effects import Assigned, Assigner
from tenuto.services.launcher.effects.keepers import Keepers
from tenuto.services.launcher.handlers import Listener
from tenuto.services.launcher.handlers.nodes import NodeQuestions
from tenuto.services.launcher.policies.provisioning.requests import standings
from tenuto.services.launcher.state import State

POOL_CONNECTIONS_MAX = 2
"""Most connections to the database; they serve the positions of the one lane."""
QUERY_SECONDS_MAX = 30.0


class Launcher:
    def __init__(
        self,
        loop: ServiceLoop[State],
        lane: Ingress,
        listener: Listener,
        backlogs: Backlogs,
        assigner: Assigner,
        keepers: Keepers,
        questions: NodeQuestions,
        pool: asyncpg.Pool,
    ) -> None:
        self.loop = loop
        self._keepers, self._questions = keepers, questions
        self._lane, self._listener, self._backlogs = lane, listener, backlogs
        self._assigner, self._pool = assigner, pool
        loop.on_folded(Losses().note)

    def watched(self) -> MonitoredState:
        return self.loop.watched().adding({"nodes": lambda: nodes_of(self.loop), "backlog": lambda: backlog_of(self._backlogs)})

    async def run(self) -> None:
        """Runs the service until cancelled."""
        try:
            await run_together(
                loop=self.loop.run(),
                lane=self._lane.run(),
                listener=self._listener.run(),
                backlogs=self._backlogs.run(),
                nodes=self._keepers.run(),
                questions=self._questions.run(),
            )
        finally:
            await self._assigner.close()
            self._pool.terminate()


async def build(
    settings: Settings, log: EventLog, bus: Client, clock: Clock, *, feed: EventFeed | None = None, checks: bool = False
) -> Launcher:
    """`feed` and `checks` are for tests: where the events come from, and whether invariants are asserted after each commit."""
    pool = await open_pool(settings.database_url, POOL_CONNECTIONS_MAX, QUERY_SECONDS_MAX)
    loop = ServiceLoop(LauncherCore(), log, feed or StreamFeed(log, bus), clock, settings, checks=checks)
    tokens = await load_report_tokens(pool)
    secrets = Secrets(pool, Path(settings.secret_key_file) if settings.secret_key_file else None)
    assigned = Assigned(tokens, secrets, stores_of("", settings.stores_file))
    assigner = Assigner(loop, bus, assigned)
    backlogs = Backlogs(bus, clock)
    listener = Listener(loop, log, bus, clock, settings, backlogs, tokens, assigned)
    lane = Ingress("launcher", settings, bus, pool, listener.record)
    files = Path(settings.provisioner_directory) if settings.provisioner_directory else None
    keepers = Keepers(loop, log, bus, clock, partial(_open, tokens.cluster, files))
    questions = NodeQuestions(
        bus, keepers, lambda name: _provisioning(loop.state, name), lambda name: _standings(loop.state, name, clock.now_us())
    )
    return Launcher(loop, lane, listener, backlogs, assigner, keepers, questions, pool)


def _open(cluster: str, files: Path | None, pool: str, provisioning: Provisioning) -> Provisioner:
    return open_provisioner(cluster, pool, provisioning, files)


def _standings(state: State, pool: str, now_us: int) -> tuple[DemandStanding, ...]:
    known = state.pools.get(pool)
    return standings(state, known, now_us) if known is not None else ()


def _provisioning(state: State, pool: str) -> Provisioning | None:
    known = state.pools.get(pool)
    return known.provisioning if known is not None and known.provisioning.starts_nodes else None
