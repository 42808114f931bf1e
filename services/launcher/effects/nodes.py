"""Nodes at their providers, held to what is on record: one keeper per pool and generation of its settings.

A keeper looks at what the provider has, compares it with the record, starts what was requested and is not there, stops what is
there and not (or no more) on record, and submits what it saw. It remembers nothing that matters: a launcher that is killed
anywhere begins anew from the record and the provider's answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.node_tokens import NODE_TOKEN_SECONDS_MAX, NodeTokenAnswer, NodeTokenQuestion
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner, ProvisionerError, RealNode
from tenuto.services.launcher.commands import LookAtNodes, SeenNode, StartFailure
from tenuto.services.launcher.policies.provisioning.orders import ProvidedPool, wanted_orders
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Node

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Between looks at a provider that has, or should have, nodes."""
POLL_IDLE_SECONDS = 600.0
"""The same where it should have none: only what nobody knows of could be there."""
PAUSE_SECONDS_MIN = 1.0
"""Least time between two looks, however often the record changes: providers limit how often they are asked."""
LOOK_SECONDS_MAX = 60.0
START_SECONDS_MAX = 300.0
"""For one group: some providers take tens of seconds to say that they have no capacity."""
STOP_SECONDS_MAX = 60.0
TOKEN_SECONDS_MAX = 10.0
"""For the gateway's answer."""
STARTS_AT_ONCE = 4
"""Groups of one pool."""
STOPS_AT_ONCE = 8
TROUBLE_SECONDS_FIRST = 2.0
TROUBLE_SECONDS_MAX = 60.0
"""A provider that is away is asked again after these."""

T = TypeVar("T")


class Keeper:
    """Of the nodes of one pool by one generation of its settings."""

    def __init__(
        self, loop: ServiceLoop[State], log: EventLog, bus: Client, clock: Clock, provided: ProvidedPool, provisioner: Provisioner
    ) -> None:
        self._loop, self._log, self._bus, self._clock = loop, log, bus, clock
        self._pool, self._generation, self._provisioning = provided.pool, provided.generation, provided.provisioning
        self.provisioner = provisioner
        self.busy = provided.nodes > 0 or provided.current
        """False: it is asked seldom."""
        self._wake = asyncio.Event()
        self._failures: list[StartFailure] = []
        self._starting: dict[str, asyncio.Task[None]] = {}
        """By group."""
        self._starts, self._stops = asyncio.Semaphore(STARTS_AT_ONCE), asyncio.Semaphore(STOPS_AT_ONCE)
        self._trouble = Backoff(TROUBLE_SECONDS_FIRST, TROUBLE_SECONDS_MAX)
        self._seldom = Seldom(logger)

    def wake(self) -> None:
        """The record has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Keeps them until cancelled."""
        try:
            while True:
                self._wake.clear()
                try:
                    await self._look()
                except (ProvisionerError, LogUnavailable, OSError) as error:
                    self._warn(f"cannot be looked at now: {error}")
                    await asyncio.sleep(self._trouble.failed())
                    continue
                except Exception as error:  # a defect of an adapter must not end the service, nor be repeated without a pause
                    logger.exception("pool %s: its nodes cannot be looked at", self._pool)
                    self._warn(f"cannot be looked at: {error}")
                    await asyncio.sleep(TROUBLE_SECONDS_MAX)
                    continue
                self._trouble.worked()
                await asyncio.sleep(PAUSE_SECONDS_MIN)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS if self.busy else POLL_IDLE_SECONDS):
                        await self._wake.wait()
        finally:
            for task in list(self._starting.values()):
                await stop_task(task)
            await self.provisioner.close()

    async def _look(self) -> None:
        try:
            real = await bounded(self.provisioner.nodes(), LOOK_SECONDS_MAX)
        except ProvisionerError:
            await self._submit(None)
            raise
        # The record must be at least as new as the answer, or a node that was requested meanwhile would look like an orphan.
        await self._loop.wait_position(await self._log.head())
        orders = wanted_orders(self._loop.state, self._pool, self._generation, real, self._clock.now_us())
        for group in orders.start:
            key = group[0].group
            if key not in self._starting:
                task = asyncio.create_task(self._start(group), name=f"start-{key}")
                self._starting[key] = task
                task.add_done_callback(lambda _, key=key: self._started(key))  # type: ignore[misc]
        await asyncio.gather(*(self._stop(node) for node in orders.stop))
        await self._submit(real)

    def _started(self, group: str) -> None:
        del self._starting[group]
        self.wake()

    async def _submit(self, real: Sequence[RealNode] | None) -> None:
        failures, self._failures = tuple(self._failures), []
        seen = None if real is None else tuple(SeenNode(item.node_id, item.provider_id, item.phase, item.detail) for item in real)
        if seen is None and not failures:
            return
        now_us = self._clock.now_us()
        look = LookAtNodes(self._clock.new_id(), now_us, self._pool, self._generation, seen, failures)
        # Nearly all looks decide nothing; those need no turn of the loop.
        if not self._loop.core.decide(self._loop.state, look):
            return
        try:
            await self._loop.submit(look)
        except LogUnavailable:
            self._failures[:0] = failures
            raise
        except Refused as error:
            self._warn(f"a look was refused: {error}")

    # Starting and stopping.

    async def _start(self, group: Sequence[Node]) -> None:
        async with self._starts:
            try:
                orders = [await self._order(node) for node in group]
                await bounded(self.provisioner.start(orders), START_SECONDS_MAX)
            except ProvisionerError as error:
                names = ", ".join(node.node_id for node in group)
                self._warn(f"{names} could not be started ({error.kind}): {error}")
                if error.kind == "unreachable":
                    # Whether they start is not known. The next look tells, and it must not come at once.
                    await asyncio.sleep(self._trouble.failed())
                self._failures += [StartFailure(node.node_id, error.kind, str(error)) for node in group]
            except Exception as error:  # a defect of an adapter: it must not be repeated without a pause
                logger.exception("pool %s: nodes cannot be started", self._pool)
                self._failures += [StartFailure(node.node_id, "refused", f"defect: {error}") for node in group]

    async def _order(self, node: Node) -> Order:
        join_seconds = min(NODE_TOKEN_SECONDS_MAX, 2 * self._provisioning.join_seconds)
        seconds = NODE_TOKEN_SECONDS_MAX if self._queues else join_seconds
        environment = environment_of(node) | {"TENUTO_JOIN_TOKEN": await self._token(node, seconds)}
        return Order(node.node_id, node.node_type, environment)

    @property
    def _queues(self) -> bool:
        """True where a node may wait for long in the provider's own queue, before it needs its token."""
        return self._provisioning.provisioner in ("slurm", "kubernetes")

    async def _token(self, node: Node, seconds: float) -> str:
        question = NodeTokenQuestion(node_id=node.node_id, pool=node.pool, seconds=seconds)
        try:
            reply = await self._bus.request(subjects.NODE_TOKENS, question.to_json(), timeout=TOKEN_SECONDS_MAX)
            answer = NodeTokenAnswer.from_json(reply.data)
        except (NatsError, OSError, ValidationError) as error:
            why = str(error) or type(error).__name__
            raise ProvisionerError(f"The gateway gave no join token for node {node.node_id}: {why}.", "unreachable") from None
        if not answer.token:
            raise ProvisionerError(f"The gateway gave no join token for node {node.node_id}: {answer.error}", "unreachable")
        return answer.token

    async def _stop(self, node: RealNode) -> None:
        async with self._stops:
            try:
                await bounded(self.provisioner.stop(node), STOP_SECONDS_MAX)
            except ProvisionerError as error:  # the next look finds it still there
                self._warn(f"node {node.node_id} ({node.provider_id}) could not be ended: {error}")

    def _warn(self, what: str) -> None:
        self._seldom.warn(f"pool {self._pool}: nodes of provisioner {self._provisioning.provisioner}: {what}")


def environment_of(node: Node) -> dict[str, str]:
    """Environment of a node's agent, without its token."""
    # An agent that finds GPUs offers these, whatever is said of processors.
    environment = {"TENUTO_AGENT_ID": node.node_id, "TENUTO_CPU_SLOTS": str(node.node_type.slots)}
    if node.node_type.labels:
        environment["TENUTO_AGENT_LABELS"] = ",".join(node.node_type.labels)
    return environment


async def bounded(call: Awaitable[T], seconds: float) -> T:
    """The call, given up after `seconds`. Raises ProvisionerError."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise ProvisionerError(f"There was no answer within {seconds:g} s.", "unreachable") from None
