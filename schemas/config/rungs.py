"""The rungs of a configuration in words: at which lengths trials are compared, and where that says little about them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto.schemas.config.experiment import ExperimentConfig
from tenuto.schemas.config.searchers import RUNGS_DEFAULT

STEPS_MIN = 32
"""Least optimizer steps before the first comparison, by default. In fewer a model leaves the values that it was drawn with, at
whatever learning rate, and its metric says little about where it gets to; one that is warmed up is still near zero."""


def default_min(config: ExperimentConfig) -> int:
    """Shortest rung where the configuration names none: STEPS_MIN optimizer steps, but no more than the last rung below the full
    length, without which nothing would be compared. An epoch is all the data, and so enough."""
    searcher = config.searcher
    if searcher.max_length.unit == "epochs" or not searcher.COMPARES_AT_RUNGS:
        return 1
    return _default_min(searcher.max_length.value, getattr(searcher, "divisor", 1), config.optimizations.aggregation_frequency)


def _default_min(batches: int, divisor: int, step: int) -> int:
    """`step`: batches of one step of the optimizer."""
    return max(step, min(STEPS_MIN * step, batches // divisor))


def with_shortest(config: ExperimentConfig, given: Mapping[str, Any]) -> ExperimentConfig:
    """The configuration with its shortest rung written down, so that a later default changes nothing about it. What the user
    writes counts: with `max_rungs` in `given` (the searcher's settings as they came), rungs are what these say."""
    searcher = config.searcher
    if not searcher.COMPARES_AT_RUNGS or getattr(searcher, "min_rung_length", None) is not None or "max_rungs" in given:
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
    found = config.searcher.brackets
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
    if not searcher.COMPARES_AT_RUNGS:
        return []
    lengths = max((bracket.lengths for bracket in searcher.brackets), key=len)
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
