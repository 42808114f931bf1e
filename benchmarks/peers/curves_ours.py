"""Our ASHA on tables of learning curves, for others to be run on the same: `python benchmarks/peers/curves_ours.py --out FILE`.

Runs in Tenuto's environment; then `curves_peers.py FILE` runs in the environment of the peers. A configuration is a row of a
table. The rows come in the same order for everybody: the order in which the searcher draws them with that seed. The file (NPZ)
has, for each problem, `curves` [seeds or 1, rows, lengths], `lengths`, `targets` [seeds, targets], `orders` [seeds, trials], and
what each form of ASHA paid to reach each target, `costs` [forms, ratios, seeds, targets], in full trainings.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from search_quality import Search
from search_quality_problems import CURVES, PowerLawFamily, TrainedFile, space_of

from tenuto.services.searcher.sampling import sample

FORMS = ("asha", "asha_stopping")
RATIOS = (256, 16)
PARTS = (0.02, 1 / 300)
LANDSCAPE_ROWS = 2_000
TRIALS = 20_000
"""Rows drawn for each seed: no search here starts more trials."""
BUDGET = 40.0
"""In full trainings: what all searches may cost."""


@dataclass(frozen=True)
class Rows:
    curves: np.ndarray[Any, Any]
    """[rows, lengths]"""
    lengths: tuple[int, ...]
    name: str
    counts_early: bool = True

    @property
    def space(self) -> Mapping[str, Any]:
        return space_of({"row": {"type": "int", "minval": 0, "maxval": len(self.curves) - 1}})

    @property
    def max_length(self) -> int:
        return self.lengths[-1]

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        return float(self.curves[hyperparameters["row"], self.lengths.index(length)])

    def targets(self, parts: Sequence[float] = PARTS) -> list[float]:
        final = np.sort(self.curves[:, -1])
        return [float(final[max(0, math.ceil(part * len(final)) - 1)]) for part in parts]


def trained(_: int) -> Rows:
    file = TrainedFile.read(CURVES / "fashion_mlp.npz")
    return Rows(file.errors, file.lengths, "trained")


def first_thousand(_: int) -> Rows:
    file = TrainedFile.read(CURVES / "fashion_mlp.npz")
    return Rows(file.errors[:1000], file.lengths, "first_thousand")


def second_thousand(_: int) -> Rows:
    file = TrainedFile.read(CURVES / "fashion_mlp.npz")
    return Rows(file.errors[1000:], file.lengths, "second_thousand")


def power_law(seed: int) -> Rows:
    family = PowerLawFamily(seed)
    lengths = tuple(2**k for k in range(11))
    rows = [sample(family.space, seed, number) for number in range(1, LANDSCAPE_ROWS + 1)]
    return Rows(np.array([[family.loss(row, length) for length in lengths] for row in rows]), lengths, "power_law")


TABLES = {
    "trained": trained,
    "power_law": power_law,
    "first_thousand": first_thousand,
    "second_thousand": second_thousand,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--problems", nargs="+", choices=list(TABLES), default=["trained", "power_law"])
    parser.add_argument("--ratios", type=int, nargs="+", default=RATIOS)
    parser.add_argument("--parts", type=float, nargs="+", default=PARTS, help="strictness of the targets")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    ratios, parts = tuple(arguments.ratios), tuple(arguments.parts)
    out: dict[str, Any] = {"ratios": ratios, "parts": parts, "forms": FORMS, "budget": BUDGET}
    for name in arguments.problems:
        make = TABLES[name]
        tables = [make(seed) for seed in range(arguments.seeds if name == "power_law" else 1)]
        costs = np.full((len(FORMS), len(ratios), arguments.seeds, len(parts)), math.inf)
        for seed in range(arguments.seeds):
            table = tables[seed % len(tables)]
            targets = table.targets(parts)
            for form, method in enumerate(FORMS):
                for at, ratio in enumerate(ratios):
                    search = Search(method, table, ratio, seed)
                    search.until(min(targets), BUDGET * table.max_length)
                    costs[form, at, seed] = [search.cost_to(target) / table.max_length for target in targets]
            print(f"{name} seed {seed}: {costs[:, :, seed, -1].round(2).tolist()}", file=sys.stderr, flush=True)
        space = tables[0].space
        out |= {
            f"{name}/curves": np.stack([table.curves for table in tables]).astype(np.float64),
            f"{name}/lengths": tables[0].lengths,
            f"{name}/targets": [tables[seed % len(tables)].targets(parts) for seed in range(arguments.seeds)],
            f"{name}/costs": costs,
            f"{name}/orders": np.array(
                [[sample(space, seed, number)["row"] for number in range(1, TRIALS + 1)] for seed in range(arguments.seeds)],
                np.int32,
            ),
        }
        np.savez_compressed(arguments.out, **out)


if __name__ == "__main__":
    main()
