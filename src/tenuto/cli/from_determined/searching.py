"""The searcher: Determined's methods, present and past, as Tenuto's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tenuto.cli.from_determined.lengths import DeterminedLengths
from tenuto.cli.from_determined.notes import Notes
from tenuto.schemas.config.brackets import adaptive_brackets
from tenuto.schemas.config.determined_fields import FIELDS
from tenuto.schemas.config.searcher_base import CONCURRENT_TRIALS_MAX, TRIALS_MAX

COMMON = ("metric", "smaller_is_better")
SOURCES = ("source_trial_id", "source_checkpoint_uuid")
MODES = ("conservative", "standard", "aggressive")
RUNGS_MAX = 20


def convert_searcher(given: Mapping[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    given = {name: value for name, value in given.items() if value is not None}
    name = given.pop("name", None)
    rule = _METHODS.get(name) if isinstance(name, str) else None
    if rule is None:
        notes.refused("searcher.name", f"is none of Determined's methods: {', '.join(sorted(_METHODS))}", name)
        return {}
    found: dict[str, Any] = {"name": name} | {field: given.pop(field) for field in COMMON if field in given}
    for field in SOURCES:
        if field in given:
            notes.left_out(
                f"searcher.{field}",
                "checkpoints stay in Determined's storage; train there to the end, or load the weights in your own code",
                given.pop(field),
            )
    found |= rule(given, lengths, notes)
    for field, value in given.items():
        path = f"searcher.{field}"
        if path in FIELDS:
            notes.left_out(path, FIELDS[path].removeprefix("leave it out: "), value)
        else:
            notes.refused(path, f"Determined's {name} has no such field", value)
    return found


def _max_length(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, int]:
    """Full length of a trial; empty if it is refused."""
    given.pop("unit", None)
    old = next((field for field in ("max_length", "max_steps", "target_trial_steps") if field in given), None)
    if old is not None:
        return lengths.length(f"searcher.{old}", given.pop(old)) or {}
    time, metric = given.pop("max_time", None), given.pop("time_metric", None)
    if time is not None or metric is not None:
        if metric not in ("batches", "epochs") or not isinstance(time, int):
            notes.refused(
                "searcher.time_metric",
                "trials are compared at batches or epochs here, which time_metric must name, and max_time must be their number",
                metric,
            )
            return {}
        notes.changed("searcher.max_time", f"with time_metric: {metric} is max_length: {{{metric}: {time}}}")
        return {str(metric): time}
    if not lengths.is_script:
        notes.refused("searcher.max_length", "is required: a Trial class does not say how long it is trained")
        return {}
    lengths.script_decides = True
    notes.changed(
        "searcher.max_length",
        "is absent, as the script says how long it trains: {epochs: 1} stands for all of that, if it imports determined",
    )
    return {"epochs": 1}


def _concurrent(given: dict[str, Any], limit: int, notes: Notes) -> dict[str, int]:
    """Most trials at once; 0 is no limit in Determined. `limit`: the number that Determined then starts."""
    value = given.pop("max_concurrent_trials", None)
    if value is None:
        return {}
    if value == 0:
        limit = max(1, min(limit, CONCURRENT_TRIALS_MAX))
        notes.changed("searcher.max_concurrent_trials", f"0 is as many as Determined starts at once here: {limit}")
        return {"max_concurrent_trials": limit}
    return {"max_concurrent_trials": value}


def _single(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    return {"max_length": _max_length(given, lengths, notes)}


def _random(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    trials = given.pop("max_trials", None)
    limit = trials if isinstance(trials, int) else 1
    return {"max_length": _max_length(given, lengths, notes), "max_trials": trials, **_concurrent(given, limit, notes)}


def _grid(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    return {"max_length": _max_length(given, lengths, notes), **_concurrent(given, CONCURRENT_TRIALS_MAX, notes)}


def _adaptive_asha(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    in_time = "max_time" in given or "time_metric" in given  # 0.38's form, which always stops
    found: dict[str, Any] = _halving(given, lengths, notes)
    found["mode"] = given.pop("mode", "standard")
    stops = given.pop("stop_once", None)
    found["stop_once"] = bool(stops) or in_time
    if in_time:
        notes.changed("searcher.stop_once", "is true: with max_time Determined stops trials, and pauses none")
    elif stops is None:
        notes.changed(
            "searcher.stop_once", "is false, as in Determined until 0.37; 0.38 and newer always stop trials, for which write true"
        )
    rungs = given.pop("bracket_rungs", None)
    if rungs:
        notes.refused("searcher.bracket_rungs", "brackets follow from max_rungs and mode; write these", rungs)
    return found | _concurrent(given, _all_brackets(found) if given.get("max_concurrent_trials") == 0 else 1, notes)


def _halving(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    if lengths.is_script and not {"max_length", "max_time", "time_metric"} & set(given):
        notes.refused("searcher.max_length", "is required: trials are compared at parts of it")
    found: dict[str, Any] = {"max_length": _max_length(given, lengths, notes), "max_trials": given.pop("max_trials", None)}
    for field in ("divisor", "max_rungs"):
        if field in given:
            value = found[field] = given.pop(field)
            if field == "divisor" and isinstance(value, float):
                if value.is_integer():
                    found[field] = int(value)
                else:
                    notes.refused("searcher.divisor", "rungs are a whole number apart here", value)
    return found


def _all_brackets(found: Mapping[str, Any]) -> int:
    """Trials that Determined starts at once in all brackets if nothing limits them. 1 if the numbers are none that the
    validation accepts, which says so itself."""
    divisor, rungs, trials = found.get("divisor", 4), found.get("max_rungs", 5), found.get("max_trials") or 0
    length = next(iter(found["max_length"].values()), 0)
    bounds = ((divisor, 100), (rungs, RUNGS_MAX), (trials, TRIALS_MAX), (length, sys.maxsize))
    if found["mode"] not in MODES or not all(isinstance(value, int) and 1 <= value <= most for value, most in bounds):
        return 1
    brackets = adaptive_brackets(length, divisor, rungs, trials, found["mode"])
    return len(brackets) * max(brackets[-1].trials, int(divisor))


def _async_halving(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    in_time = "max_time" in given or "time_metric" in given
    rungs = given.pop("num_rungs", None)
    found = _halving(given, lengths, notes)
    if rungs is None:
        notes.refused("searcher.num_rungs", "is required in Determined's async_halving")
    stops = bool(given.pop("stop_once", None)) or in_time
    found |= {"name": "asha", "max_rungs": rungs, "mode": "stopping" if stops else "promotion"}
    notes.changed("searcher.name", f"async_halving is asha, num_rungs max_rungs, and stop_once mode: {found['mode']}")
    top = found.get("divisor", 4) ** (rungs - 1) if isinstance(rungs, int) and 0 < rungs <= RUNGS_MAX else 1
    trials = found["max_trials"] if isinstance(found["max_trials"], int) else 1
    return found | _concurrent(given, min(top, trials), notes)


def _adaptive_simple(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    found = _halving(given, lengths, notes)
    notes.changed(
        "searcher.name",
        "adaptive_simple is adaptive_asha, as Determined itself replaced it: the same brackets, compared as trials come",
    )
    return found | {"name": "adaptive_asha", "mode": given.pop("mode", "standard")}


def _by_budget(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    notes.refused(
        "searcher.budget",
        "this method shares out a total length; here a number of trials is given: write name: adaptive_asha and max_trials",
        given.get("budget", given.get("step_budget")),
    )
    given.clear()
    return {}


def _pbt(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    rounds, size = given.pop("num_rounds", None), given.pop("population_size", None)
    length = lengths.length("searcher.length_per_round", given.pop("length_per_round", None)) or {}
    if isinstance(rounds, int):
        length = {unit: count * rounds for unit, count in length.items()}
    found: dict[str, Any] = {"max_length": length, "generations": rounds, "population_size": size}
    for group, fields in (
        ("replace_function", ("truncate_fraction",)),
        ("explore_function", ("resample_probability", "perturb_factor")),
    ):
        inner = given.pop(group, None) or {}
        for field in fields:
            if field in inner:
                found[field] = inner[field]
    notes.changed("searcher.length_per_round", "num_rounds are generations, and max_length is all of their lengths")
    return found


def _custom(given: dict[str, Any], lengths: DeterminedLengths, notes: Notes) -> dict[str, Any]:
    given.clear()
    notes.refused(
        "searcher.name",
        'a custom search is a class of another form here: see "A search of your own" in docs/search.md',
        "custom",
    )
    return {}


_METHODS: Mapping[str, Callable[[dict[str, Any], DeterminedLengths, Notes], dict[str, Any]]] = {
    "single": _single,
    "random": _random,
    "grid": _grid,
    "adaptive_asha": _adaptive_asha,
    "async_halving": _async_halving,
    "adaptive_simple": _adaptive_simple,
    "adaptive": _by_budget,
    "sync_halving": _by_budget,
    "pbt": _pbt,
    "custom": _custom,
}
