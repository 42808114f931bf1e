"""A provider that lies or hangs, or a host in the wrong hands: what it answers harms neither the record nor the other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tenuto.schemas.events.node import NodeFailed, NodeStarted
from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.services.launcher.adapters.provisioners import Finding, Order, RealNode
from tenuto.services.launcher.effects import nodes as effects
from tests.support.kept_nodes import KeptNodes, hurry, until

POOL, STRANGERS = "far", 2_000
UNSTORABLE = "\0\ud800\x1b[2J\nx" + "x" * 100_000


class Liar:
    """Starts what it is asked to, and tells of more."""

    waits_long = False

    def __init__(self) -> None:
        self.own: list[str] = []
        self.stopped: list[str] = []
        self.phase = "running"

    async def start(self, orders: Sequence[Order]) -> None:
        self.own += [order.node_id for order in orders]

    async def nodes(self) -> Sequence[RealNode]:
        strangers = [RealNode(f"{UNSTORABLE}-{number}", f"i-{number}", "running", UNSTORABLE) for number in range(STRANGERS)]
        return [*strangers, *(RealNode(name, UNSTORABLE, self.phase, UNSTORABLE) for name in self.own)]  # type: ignore[arg-type]

    async def stop(self, node: RealNode) -> None:
        self.stopped.append(node.node_id)
        await asyncio.Event().wait()

    async def check(self) -> Sequence[Finding]:
        return []

    async def logs(self, node: RealNode, lines_max: int) -> str:
        return ""

    async def close(self) -> None:
        pass


async def test_strangers_that_cannot_be_ended_hold_up_no_node_and_words_are_recorded_as_they_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(effects, "STOP_SECONDS_MAX", 0.2)
    liar = Liar()
    world = KeptNodes(POOL, lambda *_: liar)
    settings = {"pool": POOL, "provisioner": "ssh", "node_types": [{"slots": 1}], "nodes_max": 3}
    await world.say(PoolProvisioned.model_validate(settings))
    await world.want(1)
    async with world.launcher() as loop:
        await until(lambda: POOL in loop.state.pools and any(node.provider_id for node in loop.state.pools[POOL].nodes.values()))
        liar.phase = "ended"
        await until(lambda: any(node.ending == "failed" for node in loop.state.pools[POOL].nodes.values()))
    said = [event.data for event in await world.log.read(0)]
    [started] = [data for data in said if isinstance(data, NodeStarted)]
    failed = next(data for data in said if isinstance(data, NodeFailed))
    for text in (started.provider_id, failed.message):
        assert text.isprintable()
        assert len(text) <= 500
    assert liar.stopped, "strangers are told to end"
