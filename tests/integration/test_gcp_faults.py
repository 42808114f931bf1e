"""The launcher over a Compute Engine that answers one request in five wrongly or late, does some twice, does not list new
instances at once, runs out of capacity and loses instances, while the launcher is killed again and again: what runs is what is
on record, and nothing is left."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Provisioner
from tenuto.services.launcher.adapters.provisioners import gcp as module
from tenuto.services.launcher.adapters.provisioners.gcp import GcpProvisioner
from tenuto.services.launcher.adapters.provisioners.gcp.door import ComputeEngineClient
from tests.support.compute_engine import ComputeEngine, Faults
from tests.support.compute_engine_rules import ZONES
from tests.support.gcp_bench import KEY, settings_of
from tests.support.kept_nodes import TOKEN, KeptNodes, asked_more, hurry, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("provisioners")]
POOL, NODES_MAX = "gpus", 8
KILLS = int(os.environ.get("TEST_KILLS", "50"))
CLUSTER = "cluster-1"


async def test_what_runs_is_what_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(module, "LOOK_SECONDS_FIRST", 0.05)
    monkeypatch.setattr(ComputeEngineClient, "close", lambda _: None)
    engine, drawn, doors = ComputeEngine(hidden_lists=2), random.Random(16), list[ComputeEngineClient]()
    engine.quotas |= {"CPUS": 1e6, "INSTANCES": 1e6}
    await engine.start()
    (tmp_path / KEY).write_text(engine.key_file())

    def opened(pool: str, provisioning: Provisioning) -> Provisioner:
        """With the door of the launcher before, whose threads go on after its end."""
        made = GcpProvisioner(CLUSTER, pool, provisioning, tmp_path)
        made._open = doors[0] if doors else None
        return made

    world = KeptNodes(POOL, opened)
    settings = settings_of(engine, zones=",".join(ZONES[:2]))

    async def provision(nodes_max: int) -> None:
        await world.say(
            PoolProvisioned(pool=POOL, provisioner="gcp", settings=settings, nodes_max=nodes_max, join_seconds=3_600.0)
        )

    def real() -> list[str]:
        """Nodes whose instances are paid for, each as often as it has one."""
        return sorted(item.labels["tenuto-node"] for item in engine.instances.values())

    try:
        await provision(NODES_MAX)
        doors.append(await GcpProvisioner(CLUSTER, POOL, Provisioning(provisioner="gcp", settings=settings), tmp_path)._door())
        engine.faults = Faults(0.2, 16)
        lost = 0
        for kill in range(KILLS):
            if kill % 4 == 0:
                await world.want(*(drawn.randint(1, 4) for _ in range(3)))
            engine.room = dict.fromkeys(ZONES[: 1 if kill % 10 < 5 else 2 if kill % 10 == 5 else 0], 0)
            async with world.launcher():
                await asked_more(engine.asked, drawn)
            if kill % 5 == 4:
                while not engine.instances:  # one is certain to come: something waits, and a zone has room
                    async with world.launcher():
                        await until(lambda: engine.instances)  # but may be deleted while its launcher ends
                engine.lose(*drawn.choice(sorted(engine.instances)))
                lost += 1
        engine.room = {}
        await world.want(4, 2)
        async with world.launcher() as loop:

            def agree() -> bool:
                pool = loop.state.pools.get(POOL)
                standing = [] if pool is None else [node for node in pool.in_order() if not node.ending]
                wanted = sorted(node.node_id for node in standing)
                return len(wanted) >= 6 and all(node.phase == "started" for node in standing) and real() == wanted

            await until(agree)
            assert len(engine.instances) <= NODES_MAX
            await provision(0)
            await until(lambda: loop.state.pools[POOL].in_order() == [] and not engine.instances)
        events = list(await world.log.read(0, 10_000))
        assert TOKEN.encode() not in b"".join(event.payload for event in events)
        again = len(engine.begun) - len(set(engine.begun))
        print(f"{KILLS} kills, {lost} lost, {len(engine.begun)} instances, {again} of a node that had had one")
    finally:
        for made in doors:
            made._threads.shutdown(wait=False, cancel_futures=True)
        await engine.stop()
