"""ASHA whose new configurations come from a model: Falkner et al., "BOHB: Robust and Efficient Hyperparameter Optimization at
Scale", ICML 2018, https://arxiv.org/abs/1807.01774, Algorithm 2, on the rungs of ASHA instead of Hyperband's (as Optuna, Syne
Tune's MOBSTER and others combine them). Stopping and promotion are ASHA's (`asha.py`).

Symbols of the paper: rho is `random_fraction` (1/3), gamma (q) is `top_fraction` (0.15), N_s is `candidates` (64), N_min is the
number of hyperparameters that vary plus one, b_w (the factor on the bandwidth for sampling) is BANDWIDTH_FACTOR (3). The model
is fitted to the longest rung that has N_min + 2 results. As in the paper's code, a trial that failed or whose metric is missing
or not finite is a result, the worst there is; one result at least has to have a score.

Departures from the paper:
- The kernel is Student's t with two degrees of freedom instead of the normal: its density and quantile need no more than a
  square root, which is the same on every machine, so that a replay elsewhere draws the same bytes. Its heavy tails explore a
  little more.
- At most GOOD_MAX and OTHERS_MAX results are in the two densities, so that a decision does not get slower as the search goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import sqrt
from typing import Any

from tenuto.schemas.config import BohbSearcher, CategoricalHyperparameter, IntHyperparameter, LogHyperparameter
from tenuto.schemas.config.ranges import BITS, below, exponent_of, power, value_at
from tenuto.schemas.sentences.search import Modelled
from tenuto.services.searcher.methods.asha import Asha
from tenuto.services.searcher.methods.base import Proposal
from tenuto.services.searcher.methods.sampling import Leaf, Path, configuration, draw_bits, fill, in_use, is_random, leaves, read
from tenuto.services.searcher.state import Experiment
from tenuto.services.searcher.state.ranking import Ranking

GOOD_MAX = 32
OTHERS_MAX = 96
"""Results in the densities: more change the model little, and each is looked at for each candidate."""
BANDWIDTH_FACTOR = 3.0
BANDWIDTH_MIN = 1e-3
"""Both are the paper's and its code's."""
CATEGORY_SLACK = 1.0
"""Results worth of doubt about a category: the fewer there are, the closer to even odds."""
MODEL_ATTEMPTS_MAX = 20
"""Times that the model is asked for a trial until the constraints hold, before it is drawn at random."""
_MIDDLE = 0.5


@dataclass(frozen=True)
class Density:
    """Kernels around points of the unit cube. Axes with categories have their index as coordinate."""

    points: tuple[tuple[float, ...], ...]
    widths: tuple[float, ...]
    categories: tuple[int, ...]
    """Number of categories of each axis; 0 for numbers."""

    @classmethod
    def around(cls, points: tuple[tuple[float, ...], ...], categories: tuple[int, ...]) -> Density:
        count, axes = len(points), len(categories)
        # Scott's rule; Decimal powers are the same everywhere.
        scott = power(float(count), -1.0 / (axes + 4))
        widths = []
        for axis in range(axes):
            if categories[axis]:
                widths.append(CATEGORY_SLACK / (count + CATEGORY_SLACK))
                continue
            mean = sum(point[axis] for point in points) / count
            variance = sum((point[axis] - mean) * (point[axis] - mean) for point in points) / max(1, count - 1)
            widths.append(max(BANDWIDTH_MIN, sqrt(variance) * scott))
        return cls(points, tuple(widths), categories)

    def at(self, place: tuple[float, ...]) -> float:
        """Up to a factor that is the same for all places."""
        total = 0.0
        for point in self.points:
            value = 1.0
            for here, there, width, many in zip(place, point, self.widths, self.categories, strict=True):
                if many:
                    value *= 1.0 - width + width / many if here == there else width / many
                else:
                    off = (here - there) / width
                    spread = 1.0 + 0.5 * off * off
                    # Student's t with two degrees of freedom: (1 + x**2 / 2)**-1.5, without its constant.
                    value /= width * spread * sqrt(spread)
            total += value
        return total / len(self.points)


class Bohb(Asha):
    @property
    def remembers(self) -> Any:
        return "all"

    def best_max(self, trials: int) -> int:
        return trials

    @cached_property
    def axes(self) -> tuple[tuple[Path, Leaf], ...]:
        """Varying hyperparameters, in an order that does not depend on the configuration's."""
        return tuple(sorted(((path, leaf) for path, leaf in leaves(self.space) if is_random(leaf)), key=lambda axis: axis[0]))

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        assert isinstance(self.settings, BohbSearcher)
        number, seed = experiment.requested + 1, experiment.seed
        rung = self._model_rung(experiment)
        # A float holds 53 bits exactly, so the comparison below has the same result on every machine.
        by_chance = draw_bits(seed, number, "bohb.random") >> (BITS - 53)
        start = number <= len(self.settings.starting_points)
        if start or rung is None or not self.axes or by_chance < self.settings.random_fraction * (1 << 53):
            return super().next_trial(experiment)
        good, others = self._densities(experiment, rung)
        hyperparameters = configuration(
            self.settings,
            self.space,
            number,
            lambda attempt: self._best_candidate(seed, number, attempt, good, others),
            MODEL_ATTEMPTS_MAX,
        )
        if hyperparameters is None:
            # The model may never leave a forbidden corner.
            return super().next_trial(experiment)
        results = len(experiment.rungs[rung].best) + len(self._lost(experiment, rung))
        return Proposal(
            hyperparameters,
            self.next_rung(experiment),
            rule=Modelled,
            numbers={"model_rung": rung, "results": results, "good": len(good.points), "others": len(others.points)},
        )

    def _model_rung(self, experiment: Experiment) -> int | None:
        # N_min + 2, as in the paper.
        needed = len(self.axes) + 1 + 2
        for index in (len(experiment.lengths) - 1, *experiment.order):
            scored = len(experiment.rungs[index].best)
            if scored and scored + len(self._lost(experiment, index)) >= needed:
                return index
        return None

    def _lost(self, experiment: Experiment, rung: int) -> Ranking:
        """Trials that got no score at the rung."""
        return experiment.rungs[rung].lost

    def _densities(self, experiment: Experiment, rung: int) -> tuple[Density, Density]:
        assert isinstance(self.settings, BohbSearcher)
        ranked = [number for keys in (experiment.rungs[rung].best, self._lost(experiment, rung)) for _, number in keys]
        least = len(self.axes) + 1
        # Two results at least are left for the density of the others.
        good = min(GOOD_MAX, max(min(least, len(ranked) - 2), int(self.settings.top_fraction * len(ranked))))
        rest = ranked[good:]
        if len(rest) > OTHERS_MAX:
            # Evenly over the ranks: what is bad and what is mediocre.
            rest = [rest[index * len(rest) // OTHERS_MAX] for index in range(OTHERS_MAX)]
        many = tuple(len(leaf.vals) if isinstance(leaf, CategoricalHyperparameter) else 0 for _, leaf in self.axes)

        def points(numbers: list[int]) -> tuple[tuple[float, ...], ...]:
            return tuple(self._point(experiment.memory[number]) for number in numbers)

        return Density.around(points(ranked[:good]), many), Density.around(points(rest), many)

    def _point(self, text: str) -> tuple[float, ...]:
        hyperparameters = json.loads(text)
        return tuple(coordinate(path, leaf, hyperparameters) for path, leaf in self.axes)

    def _best_candidate(self, seed: int, number: int, attempt: int, good: Density, others: Density) -> dict[str, Any]:
        assert isinstance(self.settings, BohbSearcher)
        best, best_ratio = None, -1.0
        for candidate in range(self.settings.candidates):
            place = self._candidate(seed, number, f"bohb/{attempt}/{candidate}", good)
            # Far from all points the density underflows to 0.
            ratio = good.at(place) / max(others.at(place), 1e-300)
            if ratio > best_ratio:
                best, best_ratio = place, ratio
        assert best is not None
        values = {path: value_at(leaf, 0) for path, leaf in leaves(self.space) if not is_random(leaf)}
        for (path, leaf), at in zip(self.axes, best, strict=True):
            if isinstance(leaf, CategoricalHyperparameter):
                values[path] = leaf.vals[int(at)]
            else:
                # A place of 1.0 would be 2**BITS, which is beyond the largest draw.
                values[path] = value_at(leaf, min((1 << BITS) - 1, int(at * (1 << 53)) << (BITS - 53)))
        return fill(self.space, in_use(self.space, values))

    def _candidate(self, seed: int, number: int, purpose: str, good: Density) -> tuple[float, ...]:
        center = good.points[below(len(good.points), draw_bits(seed, number, purpose))]
        place = []
        for axis, (path, _) in enumerate(self.axes):
            bits = draw_bits(seed, number, purpose, path)
            many = good.categories[axis]
            # One half of the bits says how far off, the other is for a category.
            uniform = ((bits >> 75) + 0.5) / (1 << 53)
            if many:
                keep = uniform >= good.widths[axis]
                place.append(center[axis] if keep else float(below(many, (bits & ((1 << 64) - 1)) << 64)))
                continue
            off = (2 * uniform - 1) / sqrt(2 * uniform * (1 - uniform))  # quantile of Student's t, two degrees of freedom
            place.append(_inside(center[axis] + off * good.widths[axis] * BANDWIDTH_FACTOR))
        return tuple(place)


def _inside(at: float) -> float:
    """Mirrored at the walls of [0, 1]; what flies further ends at a wall."""
    if at < 0:
        at = -at
    if at > 1:
        at = 2 - at
    return min(max(at, 0.0), 1.0)


def coordinate(path: Path, leaf: Leaf, hyperparameters: dict[str, Any]) -> float:
    """Position of the value in [0, 1], or the index of its category; the middle if the hyperparameter is not in use."""
    try:
        value = read(hyperparameters, path)
    except (KeyError, TypeError):
        return 0.0 if isinstance(leaf, CategoricalHyperparameter) else _MIDDLE
    if isinstance(leaf, CategoricalHyperparameter):
        return float(leaf.vals.index(value)) if value in leaf.vals else 0.0
    if isinstance(leaf, IntHyperparameter):
        return float((value - leaf.minval + 0.5) / (leaf.maxval - leaf.minval + 1))
    assert leaf.type != "const"
    if leaf.maxval == leaf.minval:
        return _MIDDLE
    at = _exponent(leaf.base, value) if isinstance(leaf, LogHyperparameter) else value
    return float(min(1.0, max(0.0, (at - leaf.minval) / (leaf.maxval - leaf.minval))))


@lru_cache(maxsize=65_536)
def _exponent(base: float, value: float) -> float:
    return exponent_of(base, value)
