"""Time of one pass over the queue of a pool whose nodes a provisioner starts.

    python benchmarks/provisioning.py [--passes 400] [--demands 1000] [--nodes 500] [--json]

The launcher's core, as the live service runs it (`decide` on a look at the provider's nodes), without log and bus. 1,000 kinds of
gangs wait, of 1 to 64 slots, some with labels, devices, racks or on one node; 500 nodes of three types are on record: a third in
service and busy, a third idle or just come, a third on their way. Each pass has another queue. `steady`: the limits leave none;
`requesting`: they do, and nodes are requested.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import replace
from typing import Any

from figures import figure, parse
from immutables import Map

from tenuto.kernel.service import spare_collector
from tenuto.schemas.events.agent import AgentJoined, Slot
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.ids import name_id
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.commands import LookAtNodes, SeenNode
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Demand, Node, ProvisionedPool

NOW_US = 10_000_000_000
POOL = "gpus"
GANGS = ((1, 50), (2, 20), (4, 18), (8, 12), (16, 4), (64, 1))
TYPES: list[dict[str, Any]] = [
    {"name": "a", "slots": 8, "device": "NVIDIA A100", "labels": ("zone=1",), "cost_per_hour": 20.0},
    {"name": "b", "slots": 4, "device": "NVIDIA H100", "labels": ("zone=2",), "images": True, "cost_per_hour": 30.0},
    {"name": "c", "slots": 8, "device": "NVIDIA A100", "labels": ("rack=r1", "zone=1"), "cost_per_hour": 25.0},
]


def queue(draw: random.Random, count: int) -> tuple[Demand, ...]:
    found = []
    for number in range(count):
        slots = draw.choices([size for size, _ in GANGS], [weight for _, weight in GANGS])[0]
        wanted = CapacityDemand(
            slots=slots,
            count=draw.choice((1, 1, 2, 5)),
            experiment_id=number + 1,
            locality=draw.choice(("any", "any", "any", "agent" if slots <= 8 else "any", "rack")),
            device=draw.choice(("", "", "a100", "h100")),
            labels=draw.choice(((), (), (), ("zone=1",), ("runtime:docker",))),
        )
        found.append(Demand(wanted, NOW_US - draw.randrange(10**9)))
    return tuple(found)


def record(draw: random.Random, count: int, settings: Provisioning) -> State:
    nodes, agents = {}, {}
    for number in range(1, count + 1):
        node_type = settings.node_types[number % 3]
        name, phase = f"{POOL}-{number}", number // 3 % 3
        node = Node(name, number, POOL, node_type, 1, name, node_type.slots, node_type.cost_per_hour, NOW_US - 10**9)
        if phase < 2:
            idle_since_us = None if phase == 0 else NOW_US - draw.randrange(10**8)
            joined_at_us = NOW_US - (10**9 if phase == 0 else draw.choice((10**7, 10**8)))
            node = replace(
                node, provider_id=f"i-{number}", started_at_us=NOW_US - 10**9, joined_at_us=joined_at_us, used=True,
                idle_since_us=idle_since_us,
            )  # fmt: skip
            slots = tuple(Slot(slot_id=at, kind="cuda", device=node_type.device) for at in range(node_type.slots))
            agents[name] = AgentJoined(
                agent_id=name, pool=POOL, host=name, slots=slots, version="1", labels=node_type.labels,
                runtimes=("process", "docker") if node_type.images else ("process",),
            )  # fmt: skip
        nodes[name] = node
    pool = ProvisionedPool(POOL, 1, settings, numbers=count, nodes=Map(nodes))
    return State(pools=Map({POOL: pool}), agents=Map(agents))


def measure(passes: int, demands: int, nodes: int, *, nodes_max: int) -> dict[str, Any]:
    draw, core = random.Random(1), LauncherCore()
    settings = Provisioning.model_validate({"provisioner": "slurm", "node_types": TYPES, "nodes_max": nodes_max})
    state = record(draw, nodes, settings)
    seen = tuple(
        SeenNode(name, f"i-{node.number}", "pending" if node.phase == "requested" else "running")
        for name, node in sorted(state.pools[POOL].nodes.items())
    )
    took, requested = [], []
    for number in range(passes):
        pool = replace(state.pools[POOL], demands=queue(draw, demands))
        asked = replace(state, pools=state.pools.set(POOL, pool))
        command = LookAtNodes(name_id("look", str(number)), NOW_US, POOL, 1, seen)
        began = time.perf_counter()
        decided = core.decide(asked, command)
        took.append((time.perf_counter() - began) * 1e3)
        requested.append(len(decided))
    took.sort()
    return {
        "demands": demands, "nodes": nodes, "nodes_max": nodes_max, "passes": passes, "p50_ms": round(statistics.median(took), 2),
        "p99_ms": round(took[int(len(took) * 0.99)], 2), "worst_ms": round(took[-1], 2),
        "decided_mean": round(statistics.fmean(requested), 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--demands", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parse(parser, passes=3, demands=20, nodes=12)
    spare_collector()  # as the services do
    for name, nodes_max in (("steady", options.nodes), ("requesting", min(1_000, options.nodes + 20))):
        found = {"case": name, **measure(options.passes, options.demands, options.nodes, nodes_max=nodes_max)}
        print(json.dumps(found) if options.json else "  ".join(f"{key}={value}" for key, value in found.items()))
        figure(f"a pass, {name}, p99", found["p99_ms"], "ms", bar="at most 20 ms")


if __name__ == "__main__":
    main()
