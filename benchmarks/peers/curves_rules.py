"""Optuna's pruner and both forms of our ASHA on many tables with many seeds: `python benchmarks/peers/curves_rules.py`.

The live core is slow for so many searches. So this runs the rules alone, in the clock of
curves_peers.py. `--check N` first runs N seeds of each table with the live core and with Optuna itself: each cost has to be the
same to the last digit. Runs in Tenuto's environment.
"""

from __future__ import annotations

import argparse
import math
import sys
from bisect import bisect_left, insort
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from curves_ours import BUDGET, FORMS, LANDSCAPES, TABLES, TRIALS, Rows, Search
from curves_peers import Optuna, Scheduler, quartiles, search, sign_test
from figures import figure, parse

from tenuto.services.searcher.methods.sampling import sample

Key = tuple[float, int]


class Rungs(Scheduler):
    """All three rules. `rungs` are lengths below the full one."""

    def __init__(self, rungs: list[int], divisor: int) -> None:
        self.rungs, self.divisor = rungs, divisor
        self.all: list[list[Key]] = [[] for _ in rungs]
        self.waiting: list[list[Key]] = [[] for _ in rungs]

    def start(self, number: int, row: int) -> None:
        pass

    def end(self, number: int) -> None:
        pass

    def report(self, number: int, length: int, loss: float) -> bool:
        if length not in self.rungs:
            return True
        at, key = self.rungs.index(length), (loss, number)
        insort(self.all[at], key)
        return self.reached(at, key)

    def reached(self, at: int, key: Key) -> bool:
        raise NotImplementedError


class OptunasRule(Rungs):
    def reached(self, at: int, key: Key) -> bool:
        # Equal losses pass.
        return bisect_left(self.all[at], (key[0], -1)) < max(1, len(self.all[at]) // self.divisor)


class Stopping(Rungs):
    def reached(self, at: int, key: Key) -> bool:
        if len(self.all[at]) == 1:
            self.waiting[at].append(key)
            return False
        return self.passes(at, key)

    def passes(self, at: int, key: Key) -> bool:
        return bisect_left(self.all[at], key) < max(1, len(self.all[at]) // self.divisor)

    def resume(self) -> int | None:
        for at in range(len(self.rungs) - 1, -1, -1):
            if self.waiting[at] and len(self.all[at]) > 1:
                key = self.waiting[at].pop()
                if self.passes(at, key):
                    return key[1]
        return None


class Promotion(Rungs):
    def reached(self, at: int, key: Key) -> bool:
        insort(self.waiting[at], key)
        return False

    def resume(self) -> int | None:
        for at in range(len(self.rungs) - 1, -1, -1):
            waiting = self.waiting[at]
            if waiting and bisect_left(self.all[at], waiting[0]) < len(self.all[at]) // self.divisor:
                return waiting.pop(0)[1]
        return None


RULES: dict[str, type[Rungs]] = {"optuna": OptunasRule, "asha": Promotion, "asha_stopping": Stopping}


class Order(Sequence[int]):
    """The rows in the order in which the searcher draws them with that seed."""

    def __init__(self, table: Rows, seed: int) -> None:
        self.space, self.seed, self.known = table.space, seed, list[int]()

    def __len__(self) -> int:
        return TRIALS

    def __getitem__(self, index: Any) -> Any:
        while len(self.known) <= index:
            self.known.append(int(sample(self.space, self.seed, len(self.known) + 1)["row"]))
        return self.known[index]


class Duel:
    """One table, divisor, number of workers and strictness; each cost is of one rule, R/r and seed."""

    def __init__(self, name: str, tables: list[Rows], orders: list[Order], divisor: int, workers: int, part: float) -> None:
        self.name, self.orders, self.divisor, self.workers = name, orders, divisor, workers
        self.tables = [tables[seed % len(tables)] for seed in range(len(orders))]
        self.targets = [table.targets([part]) for table in self.tables]
        self.curves = [table.curves.tolist() for table in tables] * (len(orders) // len(tables))

    def cost(self, rule: str, ratio: int, seed: int, itself: bool = False) -> float:
        """`itself`: by Optuna's own pruner, or by the live core."""
        table, targets = self.tables[seed], self.targets[seed]
        last = table.max_length
        if itself and rule in FORMS:
            return Search(FORMS[rule], table, self.divisor, ratio, self.workers, targets, seed).to_targets()[0]
        skip = table.lengths.index(last // ratio)
        rungs = [last // self.divisor**k for k in range(1, round(math.log(ratio, self.divisor)) + 1)][::-1]
        scheduler = Optuna(rungs[0], last, self.divisor, seed, []) if itself else RULES[rule](rungs, self.divisor)
        rows, lengths = self.orders[seed], list(table.lengths[skip:])
        curves = _From(self.curves[seed], skip)
        return search(scheduler, curves, lengths, rows, targets, self.divisor, self.workers, BUDGET, seed)[0]


class _From:
    """Curves without their first lengths."""

    def __init__(self, curves: list[list[float]], skip: int) -> None:
        self.curves, self.skip = curves, skip

    def __getitem__(self, row: int) -> Any:
        return self.curves[row][self.skip :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=90)
    parser.add_argument("--problems", nargs="+", choices=list(TABLES), default=[name for name in TABLES if name != "trained"])
    parser.add_argument("--ratios", type=int, nargs="+", default=[256])
    parser.add_argument("--divisor", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[4])
    parser.add_argument("--part", type=float, default=0.01, help="strictness of the target")
    parser.add_argument("--check", type=int, default=0, help="so many seeds with the live core and Optuna itself, too")
    arguments = parse(parser, seeds=1, problems=["wandering"], ratios=[16], check=1)
    print(f"divisor {arguments.divisor}, best {arguments.part:.2%}, {arguments.seeds} seeds\n")
    print("| curves | workers | R/r | Optuna | asha | asha_stopping | asha against Optuna | asha_stopping against Optuna |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    pooled = {form: [0, 0, 0.0, 0] for form in FORMS}
    for name in arguments.problems:
        many = arguments.seeds if name in LANDSCAPES else 1
        tables = [TABLES[name](seed).to_base(arguments.divisor) for seed in range(many)]
        orders = [Order(tables[seed % many], seed) for seed in range(arguments.seeds)]
        for workers in arguments.workers:
            duel = Duel(name, tables, orders, arguments.divisor, workers, arguments.part)
            for ratio in arguments.ratios:
                costs = {rule: [duel.cost(rule, ratio, seed) for seed in range(arguments.seeds)] for rule in RULES}
                for rule in RULES:
                    for seed in range(arguments.check):
                        real = duel.cost(rule, ratio, seed, itself=True)
                        assert real == costs[rule][seed], f"{name} {rule} {seed}: {real} is not {costs[rule][seed]}"
                        print(f"{name} R/r {ratio} {rule} seed {seed}: {real}, the same", file=sys.stderr, flush=True)
                _row(duel, ratio, costs, pooled)
    for form, (less, more, logs, cells) in pooled.items():
        times = math.exp(logs / cells)
        print(f"\n{form} against Optuna, all: {less}:{more}, p={sign_test(less, more):.1g}, costs {times:.2f} times as much")
        figure(f"cost of a search by {form}, all curves", times, "times", beside="Optuna's pruner", of=1.0)


def _row(duel: Duel, ratio: int, costs: dict[str, list[float]], pooled: dict[str, list[Any]]) -> None:
    cells = [duel.name, str(duel.workers), str(ratio)]
    for rule in RULES:
        middle = quartiles(costs[rule])[1]
        cells.append(f"{middle:.3g}" if math.isfinite(middle) else f">{BUDGET:.0f}")
    for form in FORMS:
        pairs = list(zip(costs[form], costs["optuna"], strict=True))
        less, more = sum(ours < theirs for ours, theirs in pairs), sum(ours > theirs for ours, theirs in pairs)
        logs = sum(math.log(min(ours, BUDGET) / min(theirs, BUDGET)) for ours, theirs in pairs) / len(pairs)
        cells.append(f"{less}:{more} p={sign_test(less, more):.1g}, {math.exp(logs):.2f}")
        pooled[form] = [one + another for one, another in zip(pooled[form], [less, more, logs, 1], strict=True)]
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
