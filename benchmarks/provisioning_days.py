"""A hundred simulated days of bursty load on nodes that come and go: cost, waiting, orphans.

    python benchmarks/provisioning_days.py [--days 100] [--seeds 1 2 3] [--json]

The cores of scheduler and launcher under a virtual clock (`tenuto sim cluster --provision`): bursts of 20 experiments with gangs
of 1 to 8 slots that train an hour in the mean, on at most 10 nodes of 8 slots that boot for 3 minutes and are given back after 5
idle ones; the provider is looked at every minute. Beside it: a threshold (one more node at each look while anything waits), and
all nodes kept always (static).

`foreknown` is the least that anybody could pay who knows the future and runs the same trials on the same nodes at the same times:
the time that nodes have work, a boot for each that is not there, and between two uses the shorter of keeping it and booting anew.
`packed` also lets trials move at no cost, so that no slot is empty that need not be: no real scheduler can have it.

`orphans`: machines that exist at the end, a day after the last trial, and are not on record, or the other way round. `starved`:
trials that never ended.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from figures import figure, parse

from tenuto.cli.sim_nodes import Bill, NodeSimulation, static, unserved
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.scheduler.simulation import traces
from tenuto.services.scheduler.simulation.cluster import Costs

DAY_US, SECOND = 86_400_000_000, 1_000_000
NODES_MAX, SLOTS, LOAD = 10, 8, 0.15
JOBS_PER_DAY = 51.5
"""At this load, with two trials of 2.8 slots for an hour in the mean."""
SETTINGS = Provisioning.model_validate(
    {
        "provisioner": "slurm", "node_types": [{"slots": SLOTS, "cost_per_hour": 1.0}], "nodes_max": NODES_MAX,
        "idle_seconds": 300.0,
    }
)  # fmt: skip


def row(bill: Bill) -> dict[str, Any]:
    waits = sorted(bill.outcome.waits_us)
    return {
        "node_hours": round(bill.node_hours, 1),
        "wait_mean_s": round(sum(waits) / len(waits) / 1e6),
        "wait_p95_s": round(waits[int(len(waits) * 0.95)] / 1e6),
        "wait_max_s": round(waits[-1] / 1e6),
        "used": round(bill.outcome.useful / 3.6e9 / bill.slot_hours, 3),
        "starved": bill.outcome.unfinished,
    }


def measure(days: float, seed: int) -> list[dict[str, Any]]:
    drawn = traces.generated(round(days * JOBS_PER_DAY), NODES_MAX * SLOTS, seed, arrivals="bursty", load=LOAD)
    script = unserved(traces.script_of(drawn, 1, SLOTS))
    options: dict[str, Any] = {"boot_us": 180 * SECOND, "poll_us": 60 * SECOND, "seed": seed}
    began = time.perf_counter()
    run = NodeSimulation(script, "priority", Costs(), SETTINGS, **options)
    bill = run.run()
    took = time.perf_counter() - began
    foreknown, packed = run.oracle()[0], run.packed()
    assert run.fleet is not None
    run.cluster.run_on(run.now_us + DAY_US)
    pool = run.fleet.pool
    assert pool is not None
    orphans = len({machine.node_id for machine in run.provider.live(run.now_us)} ^ set(pool.nodes))
    first = {
        "seed": seed, "way": "provisioned", "days": round((bill.outcome.end_us - bill.outcome.start_us) / DAY_US, 1), **row(bill),
        "nodes": bill.nodes, "orphans": orphans, "beside_foreknown": round(bill.node_hours / foreknown, 3),
        "beside_packed": round(bill.node_hours / packed, 3), "took_s": round(took, 1),
    }  # fmt: skip
    threshold = NodeSimulation(script, "priority", Costs(), SETTINGS, way="threshold", **options).run()
    return [
        first,
        {"seed": seed, "way": "threshold", **row(threshold)},
        {"seed": seed, "way": "static", **row(static(script, "priority", Costs(), SETTINGS))},
        {"seed": seed, "way": "foreknown", "node_hours": round(foreknown, 1)},
        {"seed": seed, "way": "packed", "node_hours": round(packed, 1)},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=100.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--json", action="store_true")
    options = parse(parser, days=0.3)
    for seed in options.seeds:
        found_all = measure(options.days, seed)
        hours = {found["way"]: found["node_hours"] for found in found_all}
        of, bar = hours["foreknown"], "ratio at most 1.15"
        figure(f"node hours, seed {seed}", hours["provisioned"], "h", beside="foreknown", of=of, bar=bar)
        for found in found_all:
            print(json.dumps(found) if options.json else "  ".join(f"{key}={value}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
