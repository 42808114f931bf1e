"""Learning curves to search on: a loss for each configuration and length, in no time.

synthetic power law: loss(l) = floor + scale * l ** -rate, the form that is measured for neural networks (Hestness et al., "Deep
Learning Scaling is Predictable, Empirically", 2017). Floor, scale and rate follow from where the configuration is in the unit
cube, so that they have a structure a model can learn; a configuration that is far off diverges. Noise is drawn for each
configuration and length. table: curves that were really trained, one row per configuration; a configuration of the search gets
the nearest row.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from tenuto.schemas.config import ConstHyperparameter
from tenuto.services.searcher.methods.bohb import coordinate
from tenuto.services.searcher.methods.sampling import draw_bits, is_random, leaves

_UNIT = float(1 << 128)


class Curves(Protocol):
    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        """Smaller is better, whatever the experiment's metric is."""
        ...


def _uniform(seed: int, *key: str) -> float:
    return draw_bits(seed, 0, "simulation", tuple(key)) / _UNIT


@lru_cache(maxsize=65_536)
def _of_landscape(seed: int, name: str, what: str) -> float:
    return _uniform(seed, name, what)


def _normal(seed: int, *key: str) -> float:
    one, other = _uniform(seed, *key, "a"), _uniform(seed, *key, "b")
    return math.sqrt(-2 * math.log(1 - one)) * math.cos(2 * math.pi * other)


@dataclass(frozen=True)
class PowerLaw:
    """A random landscape over the search space of a configuration; one seed is one landscape."""

    space: Mapping[str, Any]
    max_length: int
    seed: int = 0
    noise: float = 0.01
    """Standard deviation of the noise, in parts of the spread of the final losses."""

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        place = self.place(hyperparameters)
        off = spread = slow = 0.0
        for name, at in place.items():
            weight = 0.2 + _of_landscape(self.seed, name, "weight")
            best = 0.15 + 0.7 * _of_landscape(self.seed, name, "best")
            off += weight * (at - best) ** 2 * 4
            spread += weight
            slow += (at - 0.5) * (_of_landscape(self.seed, name, "slow") - 0.5)
        quality = off / max(spread, 1e-9)  # 0 is the best there is
        floor = 0.1 + quality
        # Who is good in the end is often slow in the beginning: curves cross, as they do with learning rates.
        rate = 0.35 + 0.35 * math.tanh(quality * 2) + 0.3 * math.tanh(slow)
        part = max(length, 1) / self.max_length
        value = floor + 0.35 * (part ** -max(0.1, rate) - 1) / (self.max_length**0.35)
        key = ",".join(f"{name}={at:.12g}" for name, at in place.items())
        return float(value) + self.noise * _normal(self.seed, "noise", key, str(length))

    def place(self, hyperparameters: Mapping[str, Any]) -> dict[str, float]:
        """Position of the configuration in the unit cube, by path."""
        return {".".join(path): at for path, at in coordinates(self.space, hyperparameters)}


def coordinates(space: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> list[tuple[tuple[str, ...], float]]:
    found = []
    for path, leaf in sorted(leaves(space), key=lambda item: item[0]):
        if is_random(leaf) and not isinstance(leaf, ConstHyperparameter):
            at = coordinate(path, leaf, dict(hyperparameters))
            many = len(leaf.vals) if leaf.type == "categorical" else 0
            found.append((path, (at + 0.5) / many if many else at))
    return found


@dataclass(frozen=True)
class CurveTable:
    """Trained curves. The file is CSV: one column per hyperparameter (dotted path), then columns `loss@<length>`."""

    space: Mapping[str, Any]
    places: tuple[tuple[float, ...], ...]
    lengths: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]

    @classmethod
    def read(cls, path: Path, space: Mapping[str, Any]) -> CurveTable:
        """Raises ValueError with what is wrong with the file."""
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            raise ValueError(f"{path} has no rows")
        lengths = sorted(int(name.removeprefix("loss@")) for name in rows[0] if name.startswith("loss@"))
        if not lengths:
            raise ValueError(f"{path} has no column `loss@<length>`, such as loss@1")
        places = []
        for row in rows:
            nested: dict[str, Any] = {}
            for name, text in row.items():
                if not name.startswith("loss@"):
                    _put(nested, name.split("."), _parsed(text))
            places.append(tuple(at for _, at in coordinates(space, nested)))
        losses = tuple(tuple(float(row[f"loss@{length}"]) for length in lengths) for row in rows)
        return cls(space, tuple(places), tuple(lengths), losses)

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        here = [at for _, at in coordinates(self.space, hyperparameters)]
        nearest = min(range(len(self.places)), key=lambda row: math.dist(here, self.places[row]))
        return self.losses[nearest][max(0, bisect_right(self.lengths, length) - 1)]


def _put(nested: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        nested = nested.setdefault(name, {})
    nested[path[-1]] = value


def _parsed(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "True": True, "False": False}.get(text, text)
