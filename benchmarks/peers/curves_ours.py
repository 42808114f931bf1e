"""Our ASHA on tables of learning curves, for others to be run on the same: `python benchmarks/peers/curves_ours.py --out FILE`.

Runs in Tenuto's environment; then `curves_peers.py FILE` runs in the environment of the peers. A configuration is a row of a
table. What chance decides is the same for everybody: the order of the rows, and the pace of a trial on its way to a rung. Losses
are looked at at each length of the table, not at rungs only, and cost is all that was trained by then, also what is under way.
The file (NPZ) has, for each problem, `curves` [seeds or 1, rows, lengths], `lengths`, `targets` [seeds, targets], `orders`
[seeds, trials], and what each form of ASHA paid to reach each target, `costs` [forms, ratios, seeds, targets], in full trainings.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from figures import figure, parse
from search_quality_problems import CURVES, PowerLawFamily, TrainedFile, problems, space_of

from tenuto.schemas.config import ExperimentConfig
from tenuto.services.searcher.methods.sampling import sample
from tenuto.services.searcher.simulation.run import Simulation, Surroundings, _SimulatedTrial

FORMS = {"asha": "promotion", "asha_stopping": "stopping"}
RATIOS = (256, 16)
PARTS = (0.01,)
LANDSCAPE_ROWS = 1_000
TRIALS = 20_000
"""Rows drawn for each seed: no search here starts more trials."""
BUDGET = 40.0
"""In full trainings: what all searches may cost."""


@dataclass(frozen=True)
class Rows:
    curves: np.ndarray[Any, Any]
    """[rows, lengths]"""
    lengths: tuple[int, ...]

    @property
    def space(self) -> Mapping[str, Any]:
        return space_of({"row": {"type": "int", "minval": 0, "maxval": len(self.curves) - 1}})

    @property
    def max_length(self) -> int:
        return self.lengths[-1]

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        return float(self.curves[hyperparameters["row"], self.lengths.index(length)])

    def targets(self, parts: Sequence[float]) -> list[float]:
        final = np.sort(self.curves[:, -1])
        return [float(final[max(0, math.ceil(part * len(final)) - 1)]) for part in parts]

    def to_base(self, base: int) -> Rows:
        """At powers of `base` instead of 2: straight lines over the logarithm of the length."""
        if base in (2, 4):
            return self
        powers = math.floor(math.log(self.max_length / self.lengths[0], base))
        at = [math.log(self.max_length) - (powers - k) * math.log(base) for k in range(powers + 1)]
        curves = np.stack([np.interp(at, np.log(self.lengths), curve) for curve in self.curves])
        return replace(self, curves=curves, lengths=tuple(base**k for k in range(powers + 1)))


def of_file(name: str, chosen: slice) -> Rows:
    file = TrainedFile.read(CURVES / f"{name}.npz")
    return Rows(file.errors[chosen], file.lengths)


def surrogate(seed: int) -> Rows:
    """Smooth between the trained curves; rows that nobody trained."""
    problem = problems(0)["surrogate"]
    rows = [sample(problem.space, 99, number) for number in range(1, LANDSCAPE_ROWS + 1)]
    lengths = tuple(2**k for k in range(problem.max_length.bit_length()))
    return Rows(np.array([[problem.loss(row, length) for length in lengths] for row in rows]), lengths)


def power_law(seed: int) -> Rows:
    family = PowerLawFamily(seed)
    lengths = tuple(2**k for k in range(11))
    rows = [sample(family.space, seed, number) for number in range(1, LANDSCAPE_ROWS + 1)]
    return Rows(np.array([[family.loss(row, length) for length in lengths] for row in rows]), lengths)


def wandering(seed: int) -> Rows:
    """No law of a curve at all: what a row is worth in the end, and a random walk away from that backwards in log(length)."""
    drawn = np.random.default_rng(1_000 + seed)
    steps = drawn.normal(size=(LANDSCAPE_ROWS, 11)) * 0.5
    steps[:, 0] = drawn.normal(size=LANDSCAPE_ROWS)
    walk = np.cumsum(steps, axis=1)[:, ::-1]
    return Rows(np.exp(0.3 * walk) + 2.0 ** -np.arange(11), tuple(2**k for k in range(11)))


TABLES = {
    "trained": lambda _: of_file("fashion_mlp", slice(None)),
    "first_thousand": lambda _: of_file("fashion_mlp", slice(1000)),
    "second_thousand": lambda _: of_file("fashion_mlp", slice(1000, None)),
    "digits": lambda _: of_file("digits_mlp", slice(None)),
    "surrogate": surrogate,
    "power_law": power_law,
    "wandering": wandering,
}
LANDSCAPES = ("power_law", "wandering")
"""Another one for each seed."""


class Search(Simulation):
    """Ends at the strictest target or at the budget. `costs` has what was paid for each."""

    def __init__(self, mode: str, table: Rows, divisor: int, ratio: int, workers: int, targets: list[float], seed: int) -> None:
        ladder = {"divisor": divisor, "max_rungs": round(math.log(ratio, divisor)) + 1, "mode": mode}
        length = {"metric": "loss", "max_length": {"batches": table.max_length}}
        raw = {"name": "asha", "max_trials": 100_000, "max_concurrent_trials": workers} | ladder | length
        config = ExperimentConfig.model_validate(
            {"name": "curves", "entrypoint": "m:T", "hyperparameters": table.space, "searcher": raw}
        )
        super().__init__(config, table, Surroundings(workers=workers, seed=seed), seed)
        self.table, self.targets, self.seed = table, targets, seed
        self.costs = [math.inf] * len(targets)
        self.measured = 0.0
        self.under_way: dict[str, tuple[float, float, float]] = {}
        """Since when, for how long and to train how much more until it is measured next, by trial."""

    def train(self, trial: _SimulatedTrial, delay: float) -> None:
        trial.run += 1
        number = int(trial.trial_id.rsplit("-", 1)[1]) - 1
        pace = random.Random(f"{self.seed} {number} {trial.target}").uniform(0.9, 1.1)
        self.on(trial, trial.length, pace)

    def on(self, trial: _SimulatedTrial, length: int, pace: float) -> None:
        """From this length to the next measured one."""
        after = next(one for one in self.table.lengths if one > length) if length else trial.target
        self.under_way[trial.trial_id] = (self.outcome.time, (after - length) * pace, after - length)
        self.at((after - length) * pace, lambda: self.measure(trial, after, pace))

    def measure(self, trial: _SimulatedTrial, length: int, pace: float) -> None:
        self.measured += self.under_way.pop(trial.trial_id)[2]
        loss = self.table.loss(trial.hyperparameters, length)
        for index, target in enumerate(self.targets):
            if math.isinf(self.costs[index]) and loss <= target:
                running = sum((self.outcome.time - since) / lasts * part for since, lasts, part in self.under_way.values())
                self.costs[index] = (self.measured + running) / self.table.max_length
        if length == trial.target:
            self.reach(trial, trial.run)
        else:
            self.on(trial, length, pace)

    def to_targets(self) -> list[float]:
        self.put(self.submission)
        while self.measured < BUDGET * self.table.max_length and math.inf in self.costs:
            self.outcome.time, _, action = heapq.heappop(self.heap)
            action()
        return self.costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--problems", nargs="+", choices=list(TABLES), default=["trained", "power_law"])
    parser.add_argument("--ratios", type=int, nargs="+", default=RATIOS)
    parser.add_argument("--divisor", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--parts", type=float, nargs="+", default=PARTS, help="strictness of the targets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=TRIALS, help=argparse.SUPPRESS)
    arguments = parse(parser, seeds=1, problems=["wandering"], ratios=[16], trials=2_000)
    ratios, parts, seeds = tuple(arguments.ratios), tuple(arguments.parts), arguments.seeds
    out: dict[str, Any] = {
        "ratios": ratios, "parts": parts, "forms": list(FORMS), "budget": BUDGET,
        "divisor": arguments.divisor, "workers": arguments.workers,
    }  # fmt: skip
    for name in arguments.problems:
        tables = [TABLES[name](seed).to_base(arguments.divisor) for seed in range(seeds if name in LANDSCAPES else 1)]
        costs = np.full((len(FORMS), len(ratios), seeds, len(parts)), math.inf)
        for seed in range(seeds):
            table = tables[seed % len(tables)]
            targets = table.targets(parts)
            for form, mode in enumerate(FORMS.values()):
                for at, ratio in enumerate(ratios):
                    search = Search(mode, table, arguments.divisor, ratio, arguments.workers, targets, seed)
                    costs[form, at, seed] = search.to_targets()
            print(f"{name} seed {seed}: {costs[:, :, seed, -1].round(2).tolist()}", file=sys.stderr, flush=True)
        for form, label in enumerate(FORMS):
            for at, ratio in enumerate(ratios):
                middle = float(np.median(costs[form, at, :, -1]))
                if math.isfinite(middle):
                    figure(f"{label}, R/r {ratio}, {name}", middle, "full trainings")
        out |= {
            f"{name}/curves": np.stack([table.curves for table in tables]).astype(np.float64),
            f"{name}/lengths": tables[0].lengths,
            f"{name}/targets": [tables[seed % len(tables)].targets(parts) for seed in range(seeds)],
            f"{name}/costs": costs,
            f"{name}/orders": np.array(
                [
                    [sample(tables[0].space, seed, number)["row"] for number in range(1, arguments.trials + 1)]
                    for seed in range(seeds)
                ],
                np.int32,
            ),
        }
        np.savez_compressed(arguments.out, **out)


if __name__ == "__main__":
    main()
