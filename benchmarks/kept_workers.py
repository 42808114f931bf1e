"""Trials that share a process beside trials that have one each: `python benchmarks/kept_workers.py [--trials 40]`.

A real cluster with one CPU slot and PyTorch. Searches of short trials follow each other by turns, with `environment.reuse_worker`
and without.

turnover        from the end of one trial's last training step to the beginning of the next one's first, as in turnover.py
of the worker   the part of it that a kept worker can shorten: from the decision that a trial ends to its exit on record, and from
                the agent's start of the next run to its first step. The rest is the last checkpoint, and the services' decisions
memory          resident memory of one worker over many runs: the model writes it at each step
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics

from embedded_cluster import directory_for_cluster, up
from figures import figure, parse
from turnover import Cluster, phases, turnover

STEPS = 8
"""Steps of each trial, as turnover.py has them."""
OF_THE_WORKER = ("WorkersExited", "WorkersStarted", "first step")
"""Parts of a turnover, as `phases` names them by their ends."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=40, help="of each search whose turnover is measured")
    parser.add_argument("--turns", type=int, default=3, help="searches of each kind")
    parser.add_argument("--series", type=int, default=1_000, help="trials of the search whose memory is measured")
    arguments = parse(parser, trials=3, turns=1, series=5)
    gaps: dict[bool, list[float]] = {False: [], True: []}
    parts: dict[bool, list[float]] = {False: [], True: []}
    rates: dict[bool, list[float]] = {False: [], True: []}
    with directory_for_cluster() as directory:
        cluster = Cluster(directory, warm=True)
        with up(cluster, 1):
            for reuse in (False, True) * arguments.turns:
                found, rate, experiment = turnover(cluster, arguments.trials, reuse=reuse)
                gaps[reuse] += found
                rates[reuse].append(rate)
                of_phases = phases(cluster, experiment)
                parts[reuse].append(sum(of_phases.get(name, 0.0) for name in OF_THE_WORKER))
            turnover(cluster, arguments.series, reuse=True)
            memory = [(int(pid), int(size)) for _, what, _, pid, size in cluster.words() if what == "begins"]
    runs = [[size for _, size in group] for _, group in itertools.groupby(memory, key=lambda one: one[0])]
    longest = max(runs, key=len)
    report: dict[str, object] = {}
    for reuse, kind in ((False, "own"), (True, "kept")):
        found = sorted(gaps[reuse])
        report[f"turnover_{kind}_p50_ms"] = round(statistics.median(found) * 1e3, 1)
        report[f"turnover_{kind}_p99_ms"] = round(found[int(0.99 * (len(found) - 1))] * 1e3, 1)
        report[f"of_the_worker_{kind}_p50_ms"] = round(statistics.median(parts[reuse]), 1)
        report[f"trials_per_second_{kind}"] = round(statistics.median(rates[reuse]), 2)
    tenth = max(len(longest) // 10, 1)
    first, last = (statistics.median(part) / 2**20 for part in (longest[tenth : 2 * tenth] or longest, longest[-tenth:]))
    report |= {"processes_of_the_series": len(runs), "runs_of_the_longest": len(longest) // STEPS}
    report |= {"memory_second_tenth_mib": round(first, 1), "memory_last_tenth_mib": round(last, 1)}
    print(json.dumps(report, indent=1))
    for name, what, bar in (("turnover", "turnover, one process", ""), ("of_the_worker", "of the worker", "at most 25 ms")):
        kept, own = (float(str(report[f"{name}_{kind}_p50_ms"])) for kind in ("kept", "own"))
        figure(f"{what}, p50", kept, "ms", beside="one each", of=own, bar=bar)
    figure("memory of one worker, last runs", round(last, 1), "MiB", beside="its first runs", of=round(first, 1))


if __name__ == "__main__":
    main()
