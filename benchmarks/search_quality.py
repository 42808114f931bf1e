"""Cost of a search until it has reached the target: `python benchmarks/search_quality.py [--seeds 30] [--problems all]`.

Each method runs in the searcher's own simulator (the live core under a virtual clock) on the same learning curves, with the same
number of workers. Cost is the length trained by all trials, in full trainings (R). The target is the loss at full length that the
best 10 %, 2 % or 0.33 % of random configurations reach; a search has reached it when it measured a loss as low (problems that
are trainings: at any length, as the model is then there; Hartmann: at full length only). A search ends when it reached the
strictest target, or after --budget full trainings: then its cost is "more than".

The defaults take a few minutes; docs/benchmarks/search-quality.md says what makes the whole report.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from figures import figure, parse
from search_quality_problems import Problem, problems, thresholds

from tenuto.schemas.config import ExperimentConfig
from tenuto.services.searcher.simulation.run import Simulation, Surroundings, _SimulatedTrial

PARTS = [0.10, 0.02, 1 / 300]
"""Strictness of the targets."""
THRESHOLD_DRAWS = 20_000
LANDSCAPE_DRAWS = 3_000
"""Where each seed has a landscape of its own, the targets are worked out for each of them."""
WORKERS = 4
DIVISOR = 4
RANDOM_BUDGET, TPE_BUDGET = 1_500.0, 200.0
"""In full trainings, whatever --budget is: random is cheap to simulate, a model is not."""
BOHB_TRIALS, ASHA_TRIALS = 1_500, 12_000
"""About so many trials are what --budget may buy: how long a simulation takes follows from them."""
METHODS = ("random", "tpe", "asha", "asha_stopping", "adaptive_asha", "hyperband", "bohb")


def searcher(method: str, max_length: int, ratio: int) -> dict[str, Any]:
    """Settings of the method where the shortest rung is max_length / ratio."""
    rungs = round(math.log(ratio, DIVISOR)) + 1
    common = {"metric": "loss", "max_length": {"batches": max_length}, "max_concurrent_trials": WORKERS}
    ladder = {"divisor": DIVISOR, "max_rungs": rungs}
    match method:
        case "random":
            return common | {"name": "random", "max_trials": 100_000}
        case "tpe":
            return common | {"name": "tpe", "max_trials": 10_000}
        case "asha":
            return common | ladder | {"name": "asha", "max_trials": 100_000}
        case "asha_stopping":
            return common | ladder | {"name": "asha", "max_trials": 100_000, "mode": "stopping"}
        case "adaptive_asha":
            return common | ladder | {"name": "adaptive_asha", "max_trials": 100_000}
        case "bohb":
            return common | ladder | {"name": "bohb", "max_trials": 10_000}
        case "hyperband":
            return common | ladder | {"name": "hyperband", "iterations": 20}
        case _:
            raise ValueError(f"no method {method}; there are {', '.join(METHODS)}")


class Search(Simulation):
    """Ends at a loss or a cost. `found` has (length trained by all, loss) for each time the best result got better."""

    def __init__(self, method: str, problem: Problem, ratio: int, seed: int) -> None:
        config = ExperimentConfig.model_validate(
            {
                "name": "quality",
                "entrypoint": "m:T",
                "hyperparameters": problem.space,
                "searcher": searcher(method, problem.max_length, ratio),
            }
        )
        super().__init__(config, problem, Surroundings(workers=WORKERS, seed=seed), seed)
        self.problem = problem
        self.found: list[tuple[float, float]] = []

    def reach(self, trial: _SimulatedTrial, run: int) -> None:
        if trial.run == run:
            self._measure(trial)
        super().reach(trial, run)

    def _measure(self, trial: _SimulatedTrial) -> None:
        """A training is measured on its way too, at powers of two: methods that never compare early pay no more for that."""
        lengths = [trial.target]
        if self.problem.counts_early:
            lengths = [2**k for k in range(trial.length.bit_length(), trial.target.bit_length()) if 2**k < trial.target] + lengths
        for length in lengths:
            if length == self.problem.max_length or self.problem.counts_early:
                loss = self.problem.loss(trial.hyperparameters, length)
                if not self.found or loss < self.found[-1][1]:
                    self.found.append((self.outcome.trained + length - trial.length, loss))

    def until(self, loss: float, cost: float) -> None:
        self.put(self.submission)
        while self.heap and self.outcome.trained < cost and not (self.found and self.found[-1][1] <= loss):
            self.outcome.time, _, action = heapq.heappop(self.heap)
            action()

    def cost_to(self, loss: float) -> float:
        return next((cost for cost, found in self.found if found <= loss), math.inf)


def quartiles(costs: list[float]) -> list[float]:
    """Lower quartile, median and upper quartile by nearest rank; infinite where too few reached the target."""
    ordered = sorted(costs)
    return [ordered[max(0, math.ceil(part * len(ordered)) - 1)] for part in (0.25, 0.5, 0.75)]


def budget_of(method: str, ratio: int, budget: float) -> float:
    """Full trainings that a search may cost: of an early-stopping one, a new trial takes about r for each of its rungs."""
    if method in ("random", "tpe"):
        return {"random": RANDOM_BUDGET, "tpe": TPE_BUDGET}[method]
    trials = BOHB_TRIALS if method == "bohb" else ASHA_TRIALS
    return min(budget, float(math.ceil(trials * (math.log(ratio, DIVISOR) + 1) / ratio)))


def measure(name: str, methods: list[str], ratios: list[int], seeds: int, budget: float, draws: int) -> list[dict[str, Any]]:
    """One row for each method, ratio and target. `draws`: random configurations from which the targets are worked out."""
    landscapes = [problems(seed)[name] for seed in range(seeds)]
    own = name == "power_law"
    once = None if own else thresholds(landscapes[0], PARTS, draws)
    targets = [once or thresholds(problem, PARTS, min(draws, LANDSCAPE_DRAWS)) for problem in landscapes]
    rows = []
    for method in methods:
        for ratio in ratios if method not in ("random", "tpe") else ratios[:1]:
            costs: dict[float, list[float]] = {part: [] for part in PARTS}
            most, began = budget_of(method, ratio, budget), time.monotonic()
            for seed, (problem, target) in enumerate(zip(landscapes, targets, strict=True)):
                search = Search(method, problem, ratio, seed)
                search.until(min(target.values()), most * problem.max_length)
                for part in PARTS:
                    costs[part].append(search.cost_to(target[part]) / problem.max_length)
            for part in PARTS:
                low, middle, high = quartiles(costs[part])
                rows.append(
                    {
                        "problem": name,
                        "method": method,
                        "ratio": ratio if method not in ("random", "tpe") else 1,
                        "part": part,
                        "low": low,
                        "median": middle,
                        "high": high,
                        "reached": sum(math.isfinite(cost) for cost in costs[part]),
                        "seeds": seeds,
                        "budget": most,
                        "costs": costs[part],
                    }
                )
            print(f"{name} {method} R/r={ratio}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def show(rows: list[dict[str, Any]]) -> str:
    """Tables in Markdown: cost in full trainings, median (quartiles), and how many times less than random and TPE need."""
    text = []
    for name in dict.fromkeys(row["problem"] for row in rows):
        mine = [row for row in rows if row["problem"] == name]
        text += [f"\n**{name}**\n", "| method | R/r | " + " | ".join(f"best {part:.2%}" for part in PARTS) + " |"]
        text += ["|---|---|" + "---|" * len(PARTS)]
        for method, ratio in dict.fromkeys((row["method"], row["ratio"]) for row in mine):
            cells = []
            for part in PARTS:
                of = {
                    row["method"]: row for row in mine if row["part"] == part and (row["method"], row["ratio"]) == (method, ratio)
                }
                row = of[method]
                ratios = []
                for other in ("random", "tpe"):
                    base = next((r for r in mine if r["part"] == part and r["method"] == other), None)
                    if base and other != method and math.isfinite(row["median"]):
                        more = "" if math.isfinite(base["median"]) else ">"
                        ratios.append(f"{more}{min(base['median'], base['budget']) / row['median']:.1f}x")
                cells.append(f"{_cost(row, 'median')} ({_cost(row, 'low')} to {_cost(row, 'high')})" + _brackets(ratios))
            text.append(f"| {method} | {ratio if ratio > 1 else ''} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def _cost(row: dict[str, Any], which: str) -> str:
    return f"{row[which]:.3g}" if math.isfinite(row[which]) else f">{row['budget']:.0f}"


def _brackets(ratios: list[str]) -> str:
    return f" **{' / '.join(ratios)}**" if len(ratios) == 2 else ""


def draw(rows: list[dict[str, Any]], path: Path, part: float) -> None:
    """Medians and quartiles of the cost to the target, a panel for each problem."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    names = list(dict.fromkeys(row["problem"] for row in rows))
    figure, panels = pyplot.subplots(1, len(names), figsize=(3.4 * len(names), 3.2), sharex=True, squeeze=False)
    for axes, name in zip(panels[0], names, strict=True):
        mine = [row for row in rows if row["problem"] == name and math.isclose(row["part"], part)]
        for at, row in enumerate(reversed(mine)):
            if math.isfinite(row["low"]):
                end = min(row["high"], row["budget"])
                axes.plot([row["low"], end], [at, at], color="0.6", linewidth=4)
                axes.plot(
                    [min(row["median"], row["budget"])], [at], "o" if math.isfinite(row["median"]) else ">", color="tab:blue"
                )
            else:
                axes.plot([row["budget"]], [at], ">", color="tab:red")
        axes.set_title(name, fontsize=9)
        axes.set_xscale("log")
        axes.set_xlabel("full trainings", fontsize=8)
        labels = [f"{row['method']}{' ' + str(row['ratio']) if row['ratio'] > 1 else ''}" for row in reversed(mine)]
        axes.set_yticks(range(len(mine)), labels, fontsize=7)
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.tick_params(axis="x", labelsize=7)
        axes.grid(alpha=0.3, axis="x")
    figure.suptitle(f"cost to a loss of the best {part:.2%} (median, quartiles; arrow: not reached)", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--problems", nargs="+", default=["trained"], help=f"of {', '.join(problems(0))}, or all")
    parser.add_argument("--methods", nargs="+", default=["random", "asha", "asha_stopping", "hyperband"], help="or all")
    parser.add_argument("--ratios", nargs="+", type=int, default=[1024], help="R/r, powers of 4")
    parser.add_argument("--budget", type=float, default=150.0)
    parser.add_argument("--json", type=Path, help="write the rows here; rows of other problems and methods there are kept")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--draws", type=int, default=THRESHOLD_DRAWS, help=argparse.SUPPRESS)
    arguments = parse(parser, seeds=1, methods=["random", "asha"], ratios=[16], budget=5.0, draws=300)
    names = list(problems(0)) if arguments.problems == ["all"] else arguments.problems
    methods = list(METHODS) if arguments.methods == ["all"] else arguments.methods
    rows: list[dict[str, Any]] = []
    for name in names:
        rows += measure(name, methods, arguments.ratios, arguments.seeds, arguments.budget, arguments.draws)
        if arguments.json is not None:
            _merge(arguments.json, rows)
    tell(rows)
    if arguments.json is not None:
        rows = json.loads(arguments.json.read_text())
    print(show(rows))
    if arguments.picture is not None:
        draw(rows, arguments.picture, PARTS[-1])


def tell(rows: list[dict[str, Any]]) -> None:
    """The cost of each search beside that of random search on the same problem and target."""
    by_random = {(row["problem"], row["part"]): row["median"] for row in rows if row["method"] == "random"}
    for row in rows:
        of = by_random.get((row["problem"], row["part"]), math.inf)
        if row["method"] != "random" and math.isfinite(row["median"]) and math.isfinite(of):
            name = f"{row['method']}, R/r {row['ratio']}, {row['problem']}, best {row['part']:.2%}"
            figure(name, row["median"], "full trainings", beside="random search", of=of)


def _merge(path: Path, rows: list[dict[str, Any]]) -> None:
    old = json.loads(path.read_text()) if path.exists() else []

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["problem"], METHODS.index(row["method"]), -row["ratio"], row["part"]

    merged = {key(row): row for row in [*old, *rows]}
    path.write_text(json.dumps([merged[one] for one in sorted(merged, key=lambda k: (k[0], k[1], k[2], -k[3]))]))


if __name__ == "__main__":
    main()
