"""Problems on which search methods are compared: learning curves that need no training. See search_quality.py.

hartmann3, hartmann6: multi-fidelity Hartmann functions (Kandasamy et al. 2017, in the form of mf-prior-bench 1.10: bias flattens
    and then inverts the function at low fidelity, noise falls with it); "good" and "bad" name its settings
power_law: random landscapes of curves floor + scale * length ** -rate (services/searcher/simulation), another one for each seed
trained: curves that were really trained (benchmarks/curves); a configuration has the curve of the nearest one trained
surrogate: a small network fitted to these curves: smooth between them, so that a model has something to learn
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import TypeAdapter

from tenuto.schemas.config import Hyperparameters
from tenuto.services.searcher.methods.sampling import draw_bits, sample
from tenuto.services.searcher.simulation.curves import PowerLaw, coordinates

CURVES = Path(__file__).with_name("curves")
_THRESHOLD_SEED = 123_456_789
_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A3 = np.array([[3.0, 10, 30], [0.1, 10, 35]] * 2)
_P3 = np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]) * 1e-4
_A6 = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]])
_P6 = (
    np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    * 1e-4
)


class Problem(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def space(self) -> Mapping[str, Any]: ...
    @property
    def max_length(self) -> int: ...
    @property
    def counts_early(self) -> bool:
        """True if a loss measured below the full length counts as a result: that of a training does, that of a biased function
        does not."""
        ...

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float: ...


def space_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return TypeAdapter(Hyperparameters).validate_python(dict(raw))


def thresholds(problem: Problem, parts: list[float], draws: int) -> dict[float, float]:
    """The loss at full length that the given part of all configurations reaches, from so many random ones."""
    losses = sorted(
        problem.loss(sample(problem.space, _THRESHOLD_SEED, number), problem.max_length) for number in range(1, draws + 1)
    )
    return {part: losses[max(0, math.ceil(part * draws) - 1)] for part in parts}


@dataclass(frozen=True)
class Hartmann:
    """Of 3 or 6 dimensions; the full length stands for fidelity 1."""

    dimensions: int
    setting: str
    seed: int = 0
    max_length: int = 1024
    counts_early: bool = False

    @property
    def name(self) -> str:
        return f"hartmann{self.dimensions} ({self.setting})"

    @cached_property
    def space(self) -> Mapping[str, Any]:
        return space_of({f"x{i}": {"type": "double", "minval": 0.0, "maxval": 1.0} for i in range(self.dimensions)})

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        bias, noise = {"good": (2.5, 2.0), "bad": (3.5, 4.0)}[self.setting]
        at = np.array([hyperparameters[f"x{i}"] for i in range(self.dimensions)])
        a, p = (_A3, _P3) if self.dimensions == 3 else (_A6, _P6)
        missing = 1 - math.log(length) / math.log(self.max_length)
        value = -float((_ALPHA - bias * missing) @ np.exp(-(a * (at - p) ** 2).sum(-1)))
        if missing <= 0:
            return value
        drawn = np.random.default_rng(draw_bits(self.seed, length, "hartmann", tuple(map(repr, at)))).normal()
        return value + abs(float(drawn)) * noise * missing


@dataclass(frozen=True)
class PowerLawFamily:
    """Eight hyperparameters; one seed is one landscape."""

    seed: int = 0
    max_length: int = 1024
    counts_early: bool = True
    name: str = "power_law"

    @cached_property
    def space(self) -> Mapping[str, Any]:
        return space_of({f"x{i}": {"type": "double", "minval": 0.0, "maxval": 1.0} for i in range(8)})

    @cached_property
    def _curves(self) -> PowerLaw:
        return PowerLaw(self.space, self.max_length, seed=self.seed)

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        return self._curves.loss(hyperparameters, length)


@dataclass(frozen=True)
class TrainedFile:
    """The curves in a file of benchmarks/curves/train.py. `errors` [configurations, lengths] are parts of 1."""

    space: Mapping[str, Any]
    places: np.ndarray[Any, Any]
    """[configurations, hyperparameters], in the unit cube, in the order of `coordinates`."""
    lengths: tuple[int, ...]
    errors: np.ndarray[Any, Any]

    @classmethod
    def read(cls, path: Path) -> TrainedFile:
        file = np.load(path)
        names = [str(name) for name in file["names"]]
        space = space_of(json.loads(str(file["space"])))
        whole = {name for name in names if space[name].type in ("int", "categorical")}
        rows = [
            {name: round(float(value)) if name in whole else float(value) for name, value in zip(names, row, strict=True)}
            for row in file["hyperparameters"]
        ]
        places = np.array([[at for _, at in coordinates(space, row)] for row in rows])
        errors = file["errors"] / float(file["validation_images"])
        return cls(space, places, tuple(int(length) for length in file["lengths"]), errors)


@dataclass(frozen=True)
class Trained:
    file: TrainedFile
    counts_early: bool = True
    name: str = "trained"
    known: dict[tuple[Any, ...], int] = field(default_factory=dict, compare=False)

    @property
    def space(self) -> Mapping[str, Any]:
        return self.file.space

    @property
    def max_length(self) -> int:
        return self.file.lengths[-1]

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        key = tuple(hyperparameters.values())
        row = self.known.get(key)
        if row is None:
            here = np.array([at for _, at in coordinates(self.space, hyperparameters)])
            row = self.known.setdefault(key, int(((self.file.places - here) ** 2).sum(-1).argmin()))
        return float(self.file.errors[row, self.file.lengths.index(length)])


@dataclass(frozen=True)
class Surrogate:
    """An ensemble of networks that give the whole curve at once; fitted by benchmarks/curves/surrogate.py."""

    file: TrainedFile
    weights: list[np.ndarray[Any, Any]]
    counts_early: bool = True
    name: str = "surrogate"
    known: dict[tuple[Any, ...], np.ndarray[Any, Any]] = field(default_factory=dict, compare=False)

    @property
    def space(self) -> Mapping[str, Any]:
        return self.file.space

    @property
    def max_length(self) -> int:
        return self.file.lengths[-1]

    @classmethod
    def read(cls, file: TrainedFile, path: Path) -> Surrogate:
        weights = np.load(path)
        return cls(file, [weights[f"w{index}"].astype(np.float32) for index in range(len(weights.files))])

    def loss(self, hyperparameters: Mapping[str, Any], length: int) -> float:
        key = tuple(hyperparameters.values())
        curve = self.known.get(key)
        if curve is None:
            here = np.array([at for _, at in coordinates(self.space, hyperparameters)], np.float32)
            curve = self.known.setdefault(key, self.curve(here))
        return float(curve[self.file.lengths.index(length)])

    def curve(self, place: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """[lengths]: the mean error of the networks. Each layer is a weight [networks, in, out] and a bias [networks, 1, out]."""
        value = np.broadcast_to(place * 2 - 1, (len(self.weights[0]), 1, len(place)))
        for index in range(0, len(self.weights), 2):
            value = value @ self.weights[index] + self.weights[index + 1]
            if index + 2 < len(self.weights):
                value = np.tanh(value)
        return np.asarray((1 / (1 + np.exp(-value))).mean(axis=(0, 1)))


def problems(seed: int) -> dict[str, Problem]:
    """All of them; where a problem has landscapes, the one of this seed."""
    found: list[Problem] = [Hartmann(size, setting, seed) for size in (3, 6) for setting in ("good", "bad")]
    found.append(PowerLawFamily(seed))
    if (CURVES / "fashion_mlp.npz").exists():
        file = _file()
        found.append(Trained(file))
        if (CURVES / "fashion_mlp_surrogate.npz").exists():
            found.append(_surrogate(file))
    return {problem.name: problem for problem in found}


_loaded: dict[str, Any] = {}


def _file() -> TrainedFile:
    if "file" not in _loaded:
        _loaded["file"] = TrainedFile.read(CURVES / "fashion_mlp.npz")
    return _loaded["file"]


def _surrogate(file: TrainedFile) -> Surrogate:
    if "surrogate" not in _loaded:
        _loaded["surrogate"] = Surrogate.read(file, CURVES / "fashion_mlp_surrogate.npz")
    return _loaded["surrogate"]
