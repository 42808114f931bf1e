"""The rungs of an experiment's brackets in their order, and brackets whose number of trials is changed. Pure tables."""

from __future__ import annotations

from tenuto.schemas.config.brackets import Bracket, shares


def flat_lengths(brackets: tuple[Bracket, ...]) -> tuple[int, ...]:
    """The rungs of all brackets, one bracket after the other."""
    return tuple(length for bracket in brackets for length in bracket.lengths)


def last_rungs(brackets: tuple[Bracket, ...]) -> tuple[int, ...]:
    """Index of the last rung of its bracket, for each rung in that order."""
    lasts: list[int] = []
    for bracket in brackets:
        lasts += [len(lasts) + len(bracket.lengths) - 1] * len(bracket.lengths)
    return tuple(lasts)


def promotion_order(brackets: tuple[Bracket, ...]) -> tuple[int, ...]:
    """Rungs below the full length, the longest first; of equal ones that of the first bracket."""
    lengths, lasts = flat_lengths(brackets), last_rungs(brackets)
    below = (index for index in range(len(lengths)) if lasts[index] != index)
    return tuple(sorted(below, key=lambda index: (-lengths[index], index)))


def resized(brackets: tuple[Bracket, ...], started: list[int], trials: int, divisor: int | None = None) -> tuple[Bracket, ...]:
    """The brackets with other trials in all. More go to those that are below their share, by `divisor` (None: all go to the
    first); fewer are taken from what has not started, the last ones first."""
    counts = [bracket.trials for bracket in brackets]
    more = max(0, trials - sum(counts))
    less = max(0, sum(counts) - trials)
    if more and divisor is not None and len(counts) > 1:
        wanted = shares(trials, divisor, [len(bracket.lengths) for bracket in brackets])
        missing = [max(0, want - count) for want, count in zip(wanted, counts, strict=True)]
        given = [more * miss // sum(missing) for miss in missing]
        counts = [count + gift for count, gift in zip(counts, given, strict=True)]
        more -= sum(given)
    counts[0] += more
    for index in range(len(counts) - 1, -1, -1):
        taken = min(less, max(0, counts[index] - max(1, started[index])))
        counts[index] -= taken
        less -= taken
    return tuple(Bracket(count, bracket.lengths) for count, bracket in zip(counts, brackets, strict=True))
