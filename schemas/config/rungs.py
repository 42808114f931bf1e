"""Brackets and their rungs, as they follow from a configuration alone: which lengths trials are compared at, and how many start
in each bracket. Pure tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.schemas.config.experiment import ExperimentConfig
from tenuto.schemas.config.searchers import (
    RUNGS_DEFAULT,
    AdaptiveAshaSearcher,
    AshaSearcher,
    BohbSearcher,
    HyperbandSearcher,
    Searcher,
    ShaSearcher,
)

STEPS_MIN = 32
"""Least optimizer steps before the first comparison, by default. In fewer a model leaves the values that it was drawn with, at
whatever learning rate, and its metric says little about where it gets to; one that is warmed up is still near zero."""
COMPARING = (ShaSearcher, HyperbandSearcher, AshaSearcher, AdaptiveAshaSearcher, BohbSearcher)
"""Methods that compare trials at rungs."""


@dataclass(frozen=True)
class Bracket:
    trials: int
    """Number of trials that start in it."""
    lengths: tuple[int, ...]
    """Lengths of its rungs, rising; the last is the full length."""


def rung_lengths(max_length: int, divisor: int, max_rungs: int, least: int | None = None) -> tuple[int, ...]:
    """Rising lengths, the last one max_length; at most max_rungs, none of the others below `least` (None: 1)."""
    lengths = [max_length]
    while len(lengths) < max_rungs and (shorter := max_length // divisor ** len(lengths)) >= (least or 1):
        lengths.append(shorter)
    return tuple(reversed(lengths))


def hyperband_brackets(
    max_length: int, divisor: int, max_rungs: int, iterations: int, least: int | None = None
) -> tuple[Bracket, ...]:
    """Algorithm 1 of Li et al., JMLR 2018: for s = s_max, ..., 0 a bracket of n = ceil((s_max + 1) / (s + 1) * eta**s) trials
    that start at r = R / eta**s. Lengths are rounded down; `max_rungs` bounds s_max + 1, and so does `least`."""
    lengths = rung_lengths(max_length, divisor, max_rungs, least)
    s_max = len(lengths) - 1
    once = tuple(Bracket(-(-(s_max + 1) * divisor**s // (s + 1)), lengths[s_max - s :]) for s in range(s_max, -1, -1))
    return once * iterations


def adaptive_rungs(max_rungs: int, mode: str) -> list[int]:
    """Rungs of each bracket, the longest first."""
    shortest = {"conservative": 1, "standard": (max_rungs - 1) // 2 + 1, "aggressive": max_rungs}[mode]
    return list(range(max_rungs, shortest - 1, -1))


def adaptive_brackets(
    max_length: int, divisor: int, max_rungs: int, max_trials: int, mode: str, least: int | None = None
) -> tuple[Bracket, ...]:
    """Brackets of adaptive ASHA. A bracket of k rungs gets trials in proportion to divisor**(k - 1) / k, so that each bracket
    trains about equally much (a trial of it costs about k * max_length / divisor**(k - 1)). What rounding leaves goes to the
    first.

    No bracket has more rungs than max_trials can fill: one with k rungs needs divisor**(k - 1) trials for one to reach the top.
    """
    rungs = len(rung_lengths(max_length, divisor, max_rungs, least))
    while rungs > 1 and divisor ** (rungs - 1) > max_trials:
        rungs -= 1
    counts = adaptive_rungs(rungs, mode)[:max_trials]
    trials = shares(max_trials, divisor, counts)
    return tuple(Bracket(n, rung_lengths(max_length, divisor, count)) for n, count in zip(trials, counts, strict=True))


def shares(max_trials: int, divisor: int, rungs: list[int]) -> list[int]:
    """Number of trials for each bracket of adaptive ASHA, of `max_trials`, by its number of rungs; at least one."""
    # Weights as whole numbers over a common denominator: no rounding differs between platforms.
    common = 1
    for count in rungs:
        common *= count
    weights = [divisor ** (count - 1) * common // count for count in rungs]
    trials = [max(1, max_trials * weight // sum(weights)) for weight in weights]
    while sum(trials) > max_trials:
        trials[trials.index(max(trials))] -= 1
    trials[0] += max_trials - sum(trials)
    return trials


def brackets_of(searcher: Searcher) -> tuple[Bracket, ...]:
    """Empty for a method that compares at no rungs."""
    length = searcher.max_length.value
    match searcher:
        case HyperbandSearcher(divisor=eta, max_rungs=most, min_rung_length=least):
            return hyperband_brackets(length, eta, most, searcher.iterations, least)
        case AdaptiveAshaSearcher(divisor=eta, max_rungs=most, min_rung_length=least):
            return adaptive_brackets(length, eta, most, searcher.max_trials, searcher.mode, least)
        case ShaSearcher() | AshaSearcher() | BohbSearcher():
            lengths = rung_lengths(length, searcher.divisor, searcher.max_rungs, searcher.min_rung_length)
            return (Bracket(searcher.max_trials, lengths),)
        case _:
            return ()


def default_min(config: ExperimentConfig) -> int:
    """Shortest rung where the configuration names none: STEPS_MIN optimizer steps, but no more than the last rung below the full
    length, without which nothing would be compared. An epoch is all the data, and so enough."""
    searcher = config.searcher
    if searcher.max_length.unit == "epochs" or not isinstance(searcher, COMPARING):
        return 1
    return _default_min(searcher.max_length.value, searcher.divisor, config.optimizations.aggregation_frequency)


def _default_min(batches: int, divisor: int, step: int) -> int:
    """`step`: batches of one step of the optimizer."""
    return max(step, min(STEPS_MIN * step, batches // divisor))


def with_shortest(config: ExperimentConfig, given: Mapping[str, Any]) -> ExperimentConfig:
    """The configuration with its shortest rung written down, so that a later default changes nothing about it. What the user
    writes counts: with `max_rungs` in `given` (the searcher's settings as they came), rungs are what these say."""
    searcher = config.searcher
    if not isinstance(searcher, COMPARING) or searcher.min_rung_length is not None or "max_rungs" in given:
        return config
    return config.model_copy(update={"searcher": searcher.model_copy(update={"min_rung_length": default_min(config)})})


def as_given(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Plain data of a recorded configuration, without the shortest rung if that is the default, and then without `max_rungs`,
    which was not given with it: what is made from it has the default of its own length. The record does not say who wrote a
    number, so one that a user wrote goes, too, where it is just the default."""
    searcher = config["searcher"]
    least = searcher.get("min_rung_length")
    if least is None or searcher["max_rungs"] != RUNGS_DEFAULT:
        return config
    step = (config.get("optimizations") or {}).get("aggregation_frequency", 1)
    batches = searcher["max_length"].get("batches")
    if least != (1 if batches is None else _default_min(batches, searcher["divisor"], step)):
        return config
    return {**config, "searcher": {name: searcher[name] for name in searcher if name not in ("min_rung_length", "max_rungs")}}


def told(config: ExperimentConfig, trials_max: int | None = None) -> str:
    """The rungs in a line, such as "40, 160, 640 batches; at most 16 trials". Empty for a method without any. `trials_max`: most
    trials, if they were changed since."""
    found = brackets_of(config.searcher)
    if not found:
        return ""
    unit = config.searcher.max_length.unit
    longest = max(found, key=lambda bracket: len(bracket.lengths))
    rungs = f"{', '.join(str(length) for length in longest.lengths)} {unit}"
    starts = sorted({bracket.lengths[0] for bracket in found})
    brackets = f"; {len(found)} brackets, which begin at {', '.join(map(str, starts))}" if len(found) > 1 else ""
    trials = trials_max or sum(bracket.trials for bracket in found)
    return f"{rungs}{brackets}; at most {trials:,} trial{'' if trials == 1 else 's'}"


def doubts(config: ExperimentConfig) -> list[str]:
    """Warnings, as sentences, of rungs whose comparison says little or has no trials to compare."""
    searcher = config.searcher
    if not isinstance(searcher, COMPARING):
        return []
    lengths = max((bracket.lengths for bracket in brackets_of(searcher)), key=len)
    unit, full = searcher.max_length.unit, searcher.max_length.value
    if len(lengths) == 1:
        return [
            f"searcher: {searcher.name} has one rung here, {full:,} {unit}, so it compares trials only at their end and stops"
            " none: a larger max_length, or a smaller divisor or min_rung_length, gives it more."
        ]
    least = default_min(config)
    if lengths[0] >= least:
        return []
    steps = lengths[0] // config.optimizations.aggregation_frequency
    return [
        f"searcher: {searcher.name} compares trials first after {lengths[0]:,} of {full:,} {unit}"
        f" ({steps:,} optimizer step{'' if steps == 1 else 's'}), which says little about them: a min_rung_length of {least:,},"
        " which counts where neither it nor max_rungs is given, compares them later."
    ]
