"""Searches whose validations are noisy: `python benchmarks/search_noise.py [--seeds 15]`.

Trained curves (benchmarks/curves, the first 1,000) and two power-law landscapes at 256 lengths, validated 256 times on the way.
A validation is off by a normal error whose standard deviation is `noise` times the spread of all losses after 4 of the 256
lengths; `falls` says whether it falls with the root of the length. Cost, in full trainings, until a configuration of the best
2 % by its true final loss was trained to the end: the median of all seeds. Each runs on the live searcher core.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from figures import figure, parse

sys.path.insert(0, str(Path(__file__).parent))
from search_quality_problems import CURVES, PowerLawFamily, TrainedFile, space_of

from tenuto.schemas.config import ExperimentConfig
from tenuto.services.searcher.methods.sampling import sample
from tenuto.services.searcher.simulation.run import Simulation, Surroundings, _SimulatedTrial

LENGTHS, ROWS, PART, BUDGET = 256, 1_000, 0.02, 100.0
TABLES = ("trained", "power_law 0", "power_law 1")
SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"name": "random"},
    "asha, R/r 64": {"name": "asha", "max_rungs": 4},
    "asha, R/r 64, mean of 4": {"name": "asha", "max_rungs": 4, "average_validations": 4},
    "asha, R/r 16": {"name": "asha", "max_rungs": 3},
    "asha, R/r 16, mean of 16": {"name": "asha", "max_rungs": 3, "average_validations": 16},
    "stopping, R/r 64": {"name": "asha", "max_rungs": 4, "mode": "stopping"},
    "stopping, R/r 64, mean of 4": {"name": "asha", "max_rungs": 4, "mode": "stopping", "average_validations": 4},
}


def tables(names: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """[rows, LENGTHS], without the worst 5 % at each length, which would make the spread that of divergence."""
    return {name: _trained() if name == "trained" else _power_law(int(name.split()[1])) for name in names}


def _trained() -> np.ndarray[Any, Any]:
    file = TrainedFile.read(CURVES / "fashion_mlp.npz")
    return _at_lengths(file.errors[:ROWS], np.array(file.lengths, float))


def _power_law(seed: int) -> np.ndarray[Any, Any]:
    family = PowerLawFamily(seed)
    lengths = [2**k for k in range(11)]
    rows = [sample(family.space, seed, number) for number in range(1, ROWS + 1)]
    losses = np.array([[family.loss(row, length) for length in lengths] for row in rows])
    return _at_lengths(losses, np.array(lengths, float))


def _at_lengths(losses: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    capped = np.minimum(losses, np.quantile(losses, 0.95, axis=0))
    at = np.log(np.arange(1, LENGTHS + 1) / LENGTHS * lengths[-1])
    return np.stack([np.interp(at, np.log(lengths), curve) for curve in capped])


class Noisy(Simulation):
    def __init__(self, settings: dict[str, Any], table: np.ndarray[Any, Any], noise: float, falls: bool, seed: int) -> None:
        self.table, self.falls, self.seed = table, falls, seed
        self.sd = noise * float(table[:, 3].std())
        common = {"metric": "loss", "max_trials": 100_000, "max_concurrent_trials": 4, "max_length": {"batches": LENGTHS}}
        config = {"name": "noise", "entrypoint": "m:T", "searcher": common | settings, "min_validation_period": {"batches": 1}}
        config["hyperparameters"] = {"row": {"type": "int", "minval": 0, "maxval": len(table) - 1}}
        space_of(config["hyperparameters"])  # type: ignore[arg-type]
        super().__init__(ExperimentConfig.model_validate(config), self, Surroundings(workers=4, seed=seed), seed)
        self.target = float(np.sort(table[:, -1])[math.ceil(PART * len(table)) - 1])
        self.cost = math.inf

    def loss(self, hyperparameters: Any, length: int) -> float:
        row = int(hyperparameters["row"])
        error = random.Random(f"{self.seed} {row} {length}").gauss(0, self.sd * (4 / length) ** (0.5 if self.falls else 0))
        return float(self.table[row, length - 1]) + error

    def reach(self, trial: _SimulatedTrial, run: int) -> None:
        ends = trial.run == run and trial.target == LENGTHS
        super().reach(trial, run)
        if ends and self.table[int(trial.hyperparameters["row"]), -1] <= self.target:  # type: ignore[call-overload]
            self.cost = min(self.cost, self.outcome.trained / LENGTHS)

    def to_target(self) -> float:
        self.put(self.submission)
        while self.heap and math.isinf(self.cost) and self.outcome.trained < BUDGET * LENGTHS:
            self.outcome.time, _, action = heapq.heappop(self.heap)
            action()
        return self.cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--curves", nargs="+", choices=TABLES, default=TABLES)
    given = parse(parser, seeds=1, curves=["trained"])
    seeds = given.seeds
    print("| curves | noise | " + " | ".join(SEARCHES) + " |\n|---|---|" + "---|" * len(SEARCHES))
    for name, table in tables(given.curves).items():
        for noise, falls in ((0.0, True), (1.0, True), (1.0, False)):
            cells, where = [], f"{name}, noise {noise:g}{', falls' if falls and noise else ''}"
            by_random = math.inf
            for search, settings in SEARCHES.items():
                costs = sorted(Noisy(settings, table, noise, falls, seed).to_target() for seed in range(seeds))
                middle = costs[(seeds - 1) // 2]
                cells.append(f"{middle:.1f}" if math.isfinite(middle) else f">{BUDGET:.0f}")
                by_random = middle if search == "random" else by_random
                if search != "random" and math.isfinite(middle):
                    of = by_random if math.isfinite(by_random) else None
                    figure(f"{search}: {where}", middle, "full trainings", beside="random search", of=of)
            print(f"| {name} | {noise:g}{', falls' if falls and noise else ''} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
