"""Several methods on the same learning curves, with many seeds: what each costs until it has found what is sought."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from statistics import median
from typing import Any

from tenuto.schemas.config import ExperimentConfig
from tenuto.services.searcher.methods.sampling import drawn, sample
from tenuto.services.searcher.simulation.curves import Curves
from tenuto.services.searcher.simulation.run import Own, SearchOutcome, Surroundings, simulate

TARGET_DRAWS = 300
"""The target is the best of so many random configurations at full length: about the top 0.3 %."""
_TARGET_SEED = 987_654_321
PATH_POINTS = 60


@dataclass(frozen=True)
class MethodResult:
    """Medians over all seeds."""

    method: str
    seeds: int
    trials: int
    cost: float
    """Length trained in all."""
    cost_range: tuple[float, float]
    """The least and the most that any of its searches trained in all."""
    best: float
    best_at_same_cost: float | None
    """Best loss when as much was trained as by the method that trained least; None where fewer than half had a loss by then."""
    target: float
    target_draws: int
    cost_to_target: float | None
    """Median over all searches; None where fewer than half of them reached it."""
    cost_quartiles: tuple[float | None, float | None]
    reached: int
    path: tuple[tuple[float, float, float, float], ...]
    """(cost, lower quartile, median, upper quartile of the best loss so far), from where all searches have a loss."""


def target_of(config: ExperimentConfig, curves: Curves, draws: int = TARGET_DRAWS) -> float:
    """The best loss of so many independent draws at full length, which no search here has drawn and which keep the constraints.
    Raises Undrawable."""
    length, space = config.searcher.max_length.value, config.hyperparameters
    settings = config.searcher.model_copy(update={"starting_points": []})

    def anew(number: int) -> dict[str, Any]:
        return drawn(settings, space, _TARGET_SEED, number, lambda attempt: sample(space, _TARGET_SEED, number, attempt))

    losses = [curves.loss(anew(number), length) for number in range(1, draws + 1)]
    # A configuration without a loss is no target.
    return min((loss for loss in losses if isfinite(loss)), default=inf)


def compare(
    configs: Mapping[str, ExperimentConfig],
    curves: Callable[[int], Curves],
    around: Surroundings,
    seeds: int,
    own: Own | None = None,
) -> list[MethodResult]:
    """Each method with each seed. A seed is a landscape, a search and its surroundings, the same for all methods; the target is
    each landscape's own, and what is said is its median. `own` decides for the method `custom`. Raises SearchStuck."""
    landscapes = [curves(seed) for seed in range(seeds)]
    first = next(iter(configs.values()))
    targets: list[float] = []
    for seed, landscape in enumerate(landscapes):
        known = seed > 0 and landscape is landscapes[0]
        targets.append(targets[0] if known else target_of(first, landscape))
    found: dict[str, list[SearchOutcome]] = {}
    for name, config in configs.items():
        decides = own if name == "custom" else None
        found[name] = [simulate(config, landscapes[seed], replace(around, seed=seed), seed, decides) for seed in range(seeds)]
    least = min(median(outcome.trained for outcome in outcomes) for outcomes in found.values())
    return [_result(name, outcomes, targets, least) for name, outcomes in found.items()]


def _result(name: str, outcomes: list[SearchOutcome], targets: list[float], least: float) -> MethodResult:
    costs = sorted(outcome.cost_to(target) for outcome, target in zip(outcomes, targets, strict=True))
    return MethodResult(
        method=name,
        seeds=len(outcomes),
        trials=round(median(outcome.trials for outcome in outcomes)),
        cost=median(outcome.trained for outcome in outcomes),
        cost_range=(min(outcome.trained for outcome in outcomes), max(outcome.trained for outcome in outcomes)),
        best=median(outcome.best for outcome in outcomes),
        best_at_same_cost=_finite(median(_best_by(outcome, least) for outcome in outcomes)),
        target=median(targets),
        target_draws=TARGET_DRAWS,
        cost_to_target=_finite(median(costs)),
        cost_quartiles=(_finite(quantile(costs, 0.25)), _finite(quantile(costs, 0.75))),
        reached=sum(isfinite(cost) for cost in costs),
        path=_path(outcomes),
    )


def _best_by(outcome: SearchOutcome, cost: float) -> float:
    return min((loss for trained, _, loss in outcome.path if trained <= cost * (1 + 1e-9)), default=inf)


def quantile(ordered: list[float], part: float) -> float:
    """The nearest one from below; of sorted numbers."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _finite(cost: float) -> float | None:
    return cost if isfinite(cost) else None


def _path(outcomes: list[SearchOutcome]) -> tuple[tuple[float, float, float, float], ...]:
    walked = [outcome.path for outcome in outcomes if outcome.path]
    if not walked:
        return ()
    first = max(path[0][0] for path in walked)
    last = max(max(outcome.trained for outcome in outcomes), first)
    grid = [first * (last / first) ** (index / (PATH_POINTS - 1)) for index in range(PATH_POINTS)] if last > first else [first]
    points = []
    for cost in grid:
        losses = sorted(min(loss for trained, _, loss in path if trained <= cost * (1 + 1e-9)) for path in walked)
        points.append((cost, quantile(losses, 0.25), median(losses), quantile(losses, 0.75)))
    return tuple(points)
