"""Brackets and their rungs: the lengths at which trials are compared, and how many start in each bracket. Pure tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bracket:
    trials: int
    """Number of trials that start in it."""
    lengths: tuple[int, ...]
    """Rising lengths of its rungs; the last is the full length."""


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
