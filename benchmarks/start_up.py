"""Cost of `tenuto up --detach` and of what it starts: `python benchmarks/start_up.py [--rounds 5]`.

Services, relay and agent forked from the preloaded parent, and each as an interpreter of its own (TENUTO_PRELOAD=0), by turns on
the same data directory, which was up before: nothing is made or compiled for the first time.

wall     seconds from the command to its end, when the REST door answers
cpu      seconds of processors for that: the command, the supervisor, and all that it started but the two servers
memory   proportional set size (shared pages count in parts) of services, relay, agent and the parent, after the start

No framework is imported ahead of need (TENUTO_WARM_ENVIRONMENTS_MAX=0): that costs the same either way.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import figures
import psutil
from embedded_cluster import EmbeddedCluster, directory_for_cluster

from tenuto.embedded.cluster import marked_processes
from tenuto.embedded.files import Layout, read_state

BARS = {"wall": "at most 2.5 s", "cpu": "at most 5 s", "memory": "ratio at most 0.5"}
WAYS = {"forked": "1", "interpreters": "0"}


class Start(NamedTuple):
    wall_seconds: float
    cpu_seconds: float
    memory_mib: float


def start(cluster: EmbeddedCluster, preload: str) -> Start:
    before, begun = _spent(), time.monotonic()
    cluster.cli("up", "--detach", TENUTO_PRELOAD=preload)
    wall_seconds = time.monotonic() - begun
    try:
        layout = Layout(cluster.root.resolve())
        state = read_state(layout)
        assert state is not None
        parts = list(marked_processes(layout))
        supervisor = psutil.Process(state.supervisor_pid)
        # What the supervisor runs as commands and has waited for belongs to it.
        cpu_seconds = _spent() - before + sum(supervisor.cpu_times()[:2])
        cpu_seconds += sum(sum(part.cpu_times()[:2]) for part in parts)
        return Start(wall_seconds, cpu_seconds, sum(_memory(part.pid) for part in parts))
    finally:
        with contextlib.suppress(RuntimeError):
            cluster.cli("down")


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no Pss")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    arguments = figures.parse(parser, rounds=1, ways=["forked"])
    found: dict[str, list[Start]] = {way: [] for way in arguments.ways}
    with directory_for_cluster() as directory:
        cluster = EmbeddedCluster(directory, directory, {"TENUTO_WARM_ENVIRONMENTS_MAX": "0"})
        if not arguments.small:
            start(cluster, "1")  # makes and compiles what is made and compiled once
        for _ in range(arguments.rounds):
            for way, starts in found.items():
                starts.append(start(cluster, WAYS[way]))
    report: dict[str, object] = {"load": round(os.getloadavg()[0], 1)}
    for field in Start._fields:
        of = {way: [getattr(item, field) for item in items] for way, items in found.items()}
        report |= {f"{field}_{way}": f"{statistics.median(values):.2f} (least {min(values):.2f})" for way, values in of.items()}
        medians = {way: statistics.median(values) for way, values in of.items()}
        name, _, unit = field.partition("_")
        if len(medians) < len(WAYS):
            [(way, own)] = medians.items()
            figures.figure(f"{name}, {way}", own, unit)
            continue
        forked, interpreters = medians["forked"], medians["interpreters"]
        report[f"{field}_ratio"] = round(interpreters / forked, 2)
        figures.figure(name, forked, unit, beside="interpreters of their own", of=interpreters, bar=BARS[name])
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
