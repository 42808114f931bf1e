"""Cases in which early stopping loses to random search, and remedies: `python benchmarks/search_noise_rules.py [--seeds 15]`.

Curves, target and noise of search_noise.py, noise that does not fall with the length and is larger, with the rules of both forms
of ASHA alone (benchmarks/peers/curves_rules.py, which checks them against the live core).
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from figures import figure, parse

sys.path.insert(0, str(Path(__file__).parent / "peers"))
sys.path.insert(0, str(Path(__file__).parent))
from curves_peers import search
from curves_rules import Promotion, Rungs, Stopping
from search_noise import BUDGET, LENGTHS, PART, TABLES, tables

DIVISOR, WORKERS = 4, 4
SEARCHES: dict[str, tuple[type[Rungs], int, int]] = {
    f"{form}, R/r {ratio}{f', mean of {mean}' if mean > 1 else ''}": (rule, ratio, mean)
    for form, rule in (("asha", Promotion), ("stopping", Stopping))
    for ratio, mean in ((256, 1), (64, 1), (64, 4), (16, 1), (16, 16))
}
FOUND = -1e9
"""Loss given to a fully trained configuration that reaches the target: beyond the reach of any noise."""


def seen(table: np.ndarray[Any, Any], lengths: list[int], mean: int, sd: float, good: Any, seed: int) -> list[list[float]]:
    """Loss of each row as seen at each rung: the mean of its last validations there, with the noise of such a mean."""
    drawn, before, columns = np.random.default_rng(seed), 0, []
    for length in lengths[:-1]:
        many = min(mean, length - before)
        columns.append(table[:, length - many : length].mean(1) + drawn.normal(0, sd / math.sqrt(many), len(table)))
        before = length
    return [list(row) for row in np.stack([*columns, np.where(good, FOUND, -FOUND)], 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--noise", type=float, nargs="+", default=[2.0, 4.0])
    parser.add_argument("--curves", nargs="+", choices=TABLES, default=TABLES)
    arguments = parse(parser, seeds=1, noise=[2.0], curves=["trained"])
    print("| curves | noise | random | " + " | ".join(SEARCHES) + " |\n|---|---|---|" + "---|" * len(SEARCHES), flush=True)
    for name, table in tables(arguments.curves).items():
        good = table[:, -1] <= np.sort(table[:, -1])[math.ceil(PART * len(table)) - 1]
        orders = [random.Random(f"{seed}").choices(range(len(table)), k=30_000) for seed in range(arguments.seeds)]
        random_cost = median([next(n + 1 for n, row in enumerate(rows) if good[row]) for rows in orders])
        for noise in arguments.noise:
            cells = []
            for shown, (rule, ratio, mean) in SEARCHES.items():
                lengths = [LENGTHS // DIVISOR**k for k in range(round(math.log(ratio, DIVISOR)) + 1)][::-1]
                costs = []
                for seed, rows in enumerate(orders):
                    losses = seen(table, lengths, mean, noise * float(table[:, 3].std()), good, seed)
                    scheduler = rule(lengths[:-1], DIVISOR)
                    costs += search(scheduler, losses, lengths, rows, [FOUND], DIVISOR, WORKERS, BUDGET, seed)
                cost = median(costs)
                cells.append(words(cost))
                if math.isfinite(cost):
                    figure(f"{shown}: {name}, noise {noise:g}", cost, "full trainings", beside="random search", of=random_cost)
            print(f"| {name} | {noise:g} | {words(random_cost)} | " + " | ".join(cells) + " |", flush=True)


def median(costs: list[float]) -> float:
    return sorted(costs)[(len(costs) - 1) // 2]


def words(cost: float) -> str:
    return f"{cost:.1f}" if math.isfinite(cost) else f">{BUDGET:.0f}"


if __name__ == "__main__":
    main()
