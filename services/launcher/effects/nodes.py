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

from tenuto.kernel import questions
from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.node_tokens import NODE_TOKEN_SECONDS_MAX, NodeTokenAnswer, NodeTokenQuestion
from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import (
    NO_IMAGES,
    Order,
    Provisioner,
    ProvisionerError,
    RealNode,
    StartsGroups,
    StartsImages,
    Watched,
)
from tenuto.services.launcher.commands import LookAtNodes, SeenNode, StartFailure
from tenuto.services.launcher.policies.provisioning.nodes import ProvidedPool, wanted_orders
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Node

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Time between two looks at a provider that has, or should have, nodes."""
POLL_IDLE_SECONDS = 600.0
"""Time between two looks at a provider that should have no nodes: only nodes on no record could be there."""
PAUSE_SECONDS_MIN = 1.0
"""Least time between two looks, however often the record changes: providers limit how often they are asked."""
LOOK_SECONDS_MAX = 60.0
START_SECONDS_MAX = 300.0
"""Longest time for starting one group: some providers take tens of seconds to say that they have no capacity."""
STOP_SECONDS_MAX = 60.0
"""Longest time for ending a node, and for all nodes that one look ends: the rest is left to the next look, which must come
soon."""
TOKEN_SECONDS_MAX = 10.0
"""Longest wait for the gateway's answer."""
STARTS_AT_ONCE = 4
"""Most groups of one pool that are started at once."""
STOPS_AT_ONCE = 8
WORDS_MAX = 1_000
"""Most characters of a provider's words that are looked at; less is recorded."""
TROUBLE_SECONDS_FIRST = 2.0
TROUBLE_SECONDS_MAX = 60.0
"""First and longest wait before an unreachable provider is asked again."""

T = TypeVar("T")


def token_seconds(provisioner: Provisioner, join_seconds: float) -> float:
    """Life of a node's join token."""
    return NODE_TOKEN_SECONDS_MAX if provisioner.waits_long else min(NODE_TOKEN_SECONDS_MAX, 2 * join_seconds)


class NodeKeeper:
    """Keeper of the nodes of one pool by one generation of its settings."""

    def __init__(
        self, loop: ServiceLoop[State], log: EventLog, bus: Client, clock: Clock, provided: ProvidedPool, provisioner: Provisioner
    ) -> None:
        self._loop, self._log, self._bus, self._clock = loop, log, bus, clock
        self._pool, self._generation, self._provisioning = provided.pool, provided.generation, provided.provisioning
        self.provisioner = provisioner
        self.busy = provided.nodes > 0 or provided.current
        """False: the provider should have no nodes, and is asked seldom."""
        self.seen: Sequence[RealNode] = ()
        """Nodes at the last look, for people who ask."""
        self._look_trouble = self._start_trouble = ""
        self._wake = asyncio.Event()
        self._failures: list[StartFailure] = []
        self._starting: dict[str, asyncio.Task[None]] = {}
        """Tasks that start groups, by group."""
        self._starts, self._stops = asyncio.Semaphore(STARTS_AT_ONCE), asyncio.Semaphore(STOPS_AT_ONCE)
        self._trouble = Backoff(TROUBLE_SECONDS_FIRST, TROUBLE_SECONDS_MAX)
        self._seldom, self._seldom_unwatched = Seldom(logger), Seldom(logger)

    @property
    def trouble(self) -> str:
        """Reason why the provider cannot be asked, or starts nothing, just now; empty: it can. For people who ask."""
        return self._look_trouble or self._start_trouble

    def wake(self) -> None:
        """Lets a look come soon: the record has changed, or the provider's nodes."""
        self._wake.set()

    async def run(self) -> None:
        """Keeps them until cancelled."""
        watching = asyncio.create_task(self._watch(), name=f"watch-{self._pool}-{self._generation}")
        try:
            while True:
                self._wake.clear()
                try:
                    await self._look()
                except (ProvisionerError, LogUnavailable, OSError) as error:
                    self._look_trouble = str(error)
                    self._warn(f"cannot be looked at now: {error}")
                    await asyncio.sleep(self._trouble.failed())
                    continue
                except Exception as error:  # a defect of an adapter must not end the service, nor be repeated without a pause
                    logger.exception("pool %s: its nodes cannot be looked at", self._pool)
                    self._look_trouble = f"The launcher's own error, which its log has: {type(error).__name__}."
                    self._warn(f"cannot be looked at: {error}")
                    await asyncio.sleep(TROUBLE_SECONDS_MAX)
                    continue
                self._look_trouble = ""
                self._trouble.worked()
                await asyncio.sleep(PAUSE_SECONDS_MIN)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS if self.busy else POLL_IDLE_SECONDS):
                        await self._wake.wait()
        finally:
            for task in (watching, *set(self._starting.values())):
                await stop_task(task)
            await self.provisioner.close()

    async def _watch(self) -> None:
        """Lets a look come as soon as the provider tells of a change. A provider that tells of none is looked at as usual."""
        if not isinstance(self.provisioner, Watched):
            return
        trouble = Backoff(TROUBLE_SECONDS_FIRST, TROUBLE_SECONDS_MAX)
        while True:
            try:
                async for _ in self.provisioner.changes():
                    trouble.worked()
                    self.wake()
            except ProvisionerError as error:
                self._seldom_unwatched.warn(
                    f"pool {self._pool}: changes of its nodes are seen every {POLL_SECONDS:g} s only: {error}"
                )
            except Exception:  # a defect of an adapter
                logger.exception("pool %s: its nodes cannot be watched", self._pool)
            await asyncio.sleep(trouble.failed())

    async def _look(self) -> None:
        try:
            real = await bounded(self.provisioner.nodes(), LOOK_SECONDS_MAX)
        except ProvisionerError:
            await self._submit(None)
            raise
        self.seen = real
        # The record must be at least as new as the answer, or a node that was requested meanwhile would look like an orphan.
        await self._loop.wait_position(await self._log.head())
        orders = wanted_orders(self._loop.state, self._pool, self._generation, real, self._clock.now_us())
        if not orders.start:
            self._start_trouble = ""
        fresh = [group for group in orders.start if group[0].group not in self._starting]
        for groups in [fresh] if fresh and isinstance(self.provisioner, StartsGroups) else [[group] for group in fresh]:
            keys = [group[0].group for group in groups]
            task = asyncio.create_task(self._start(groups), name=f"start-{keys[0]}")
            self._starting |= dict.fromkeys(keys, task)
            task.add_done_callback(lambda _, keys=keys: self._started(keys))  # type: ignore[misc]
        try:
            await bounded(asyncio.gather(*(self._stop(node) for node in orders.stop)), STOP_SECONDS_MAX)
        except ProvisionerError:  # those on record come first, so none of them waits for nodes on no record
            self._warn(f"{len(orders.stop)} nodes could not all be ended within {STOP_SECONDS_MAX:g} s")
        await self._submit(real)

    def _started(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self._starting[key]
        self.wake()

    async def _submit(self, real: Sequence[RealNode] | None) -> None:
        failures, self._failures = tuple(self._failures), []
        seen = None
        if real is not None:
            seen = tuple(_seen(item) for item in real)
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

    async def _start(self, groups: Sequence[Sequence[Node]]) -> None:
        async with self._starts:
            try:
                orders = [[await self._order(node) for node in group] for group in groups]
                answers = await bounded(self._ask(orders), START_SECONDS_MAX)
            except ProvisionerError as error:
                answers = [error] * len(groups)
            except Exception as error:  # a defect of an adapter: it must not be repeated without a pause
                logger.exception("pool %s: nodes cannot be started", self._pool)
                answers = [ProvisionerError(f"defect: {error}", "refused")] * len(groups)
            failed = [(group, error) for group, error in zip(groups, answers, strict=True) if error is not None]
            for group, failure in failed:
                names = ", ".join(node.node_id for node in group)
                self._warn(f"{names} could not be started ({failure.kind}): {failure}")
            away = [failure for _, failure in failed if failure.kind == "unreachable"]
            self._start_trouble = str(away[0]) if away else ""
            if away:
                # Whether they start is not known. The next look tells, and it must not come at once.
                await asyncio.sleep(self._trouble.failed())
            self._failures += [
                StartFailure(node.node_id, failure.kind, _shown(str(failure))) for group, failure in failed for node in group
            ]

    async def _ask(self, orders: Sequence[Sequence[Order]]) -> Sequence[ProvisionerError | None]:
        if isinstance(self.provisioner, StartsGroups) and len(orders) > 1:
            return await self.provisioner.start_groups(orders)
        for group in orders:
            await self.provisioner.start(group)
        return [None] * len(orders)

    async def _order(self, node: Node) -> Order:
        if node.own_image and not isinstance(self.provisioner, StartsImages):
            raise ProvisionerError(NO_IMAGES.format(self._provisioning.provisioner), "refused")
        seconds = token_seconds(self.provisioner, self._provisioning.join_seconds)
        environment = environment_of(node) | {"TENUTO_JOIN_TOKEN": await self._token(node, seconds)}
        return Order(node.node_id, node.node_type, environment, node.own_image)

    async def _token(self, node: Node, seconds: float) -> str:
        question = NodeTokenQuestion(node_id=node.node_id, pool=node.pool, seconds=seconds)
        try:
            said = await questions.ask(self._bus, subjects.NODE_TOKENS, question.to_json(), TOKEN_SECONDS_MAX)
            answer = NodeTokenAnswer.from_json(said)
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
        self._seldom.warn(f"pool {self._pool}: nodes of provisioner {self._provisioning.provisioner}: {_shown(what)}")


def environment_of(node: Node) -> dict[str, str]:
    """Environment of a node's agent, without its token."""
    # An agent that finds GPUs offers these, whatever is said of processors.
    environment = {"TENUTO_AGENT_ID": node.node_id, "TENUTO_CPU_SLOTS": str(node.node_type.slots)}
    if node.node_type.labels:
        environment["TENUTO_AGENT_LABELS"] = ",".join(node.node_type.labels)
    if node.own_image:
        environment["TENUTO_AGENT_IMAGE"] = node.own_image
    elif node.image:
        environment["TENUTO_DOCKER_PULL_IMAGE"] = node.image
    return environment


def _seen(node: RealNode) -> SeenNode:
    """Node as it can be recorded, whatever characters a provider puts into its answer."""
    return SeenNode(node.node_id, _shown(node.provider_id), node.phase, _shown(node.detail), node.outdated, node.image_missing)


def _shown(text: str) -> str:
    return visible(text[:WORDS_MAX])


async def bounded(call: Awaitable[T], seconds: float) -> T:
    """The call, given up after `seconds`. Raises ProvisionerError."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise ProvisionerError(f"There was no answer within {seconds:g} s.", "unreachable") from None
