"""Makes the configuration of an experiment from that of another: reproduced, varied, or gone on with. Plain data in and out; the
result is validated like any configuration that is submitted."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tenuto.schemas.config.rungs import as_given
from tenuto.schemas.record import VALIDATIONS_KEPT_MAX, RecordedValidation, TrialSource

NAME_CHARACTERS_MAX = 256
SEARCHER_FIELDS_KEPT = ("metric", "smaller_is_better", "max_length", "constraints", "source_checkpoint")
"""Fields of `searcher` that are kept when an override names another search method; its other settings are dropped."""
CONTINUED_FIELDS = (
    "name", "description", "labels", "searcher.max_length", "searcher.max_trials", "searcher.max_concurrent_trials", "resources",
    "max_restarts", "checkpoint_policy", "min_checkpoint_period", "min_validation_period", "log_period",
    "environment",
)  # fmt: skip
"""Fields that may change in a continuation: any other change would be a different training, from the weights of this one. What an
image brings along is in the record of each start, like another agent's packages."""
FIXED_FIELDS = ("environment.variables", "environment.secrets")
"""Fields below these that may not: a script may take its settings from them."""
OUTSIDE_CONTAINERS = ("variables", "secrets")
"""Fields of `environment` that count without an image, too: when an override takes the image away, the others go."""


class OverrideError(ValueError):
    """`path` is the field of the configuration; `str(error)` says what is wrong with it, without its name."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def merged(
    config: Mapping[str, Any], overrides: Mapping[str, Any], *, replaced: Collection[str] = ("checkpoint_storage",)
) -> dict[str, Any]:
    """`overrides` has the shape of a configuration, with only what changes. A hyperparameter, a length, a list and a search
    method of another name are replaced whole; with an image its settings go; other groups are merged, but for those named in
    `replaced`."""
    result = dict(config)
    for name, value in overrides.items():
        before = result.get(name)
        if name == "environment" and isinstance(value, Mapping) and "image" in value and value["image"] is None:
            before = {field: item for field, item in (before or {}).items() if field in OUTSIDE_CONTAINERS}
        if name == "searcher" and isinstance(value, Mapping) and isinstance(before, Mapping):
            result[name] = _searcher(before, value)
        elif name in replaced:
            result[name] = value
        else:
            result[name] = _merged(before, value)
    return result


def _merged(before: Any, after: Any) -> Any:
    if not isinstance(before, Mapping) or not isinstance(after, Mapping) or is_whole(before) or is_whole(after):
        return after
    result = dict(before)
    for name, value in after.items():
        result[name] = _merged(before.get(name), value)
    return result


def is_whole(value: Mapping[str, Any]) -> bool:
    """A value of its own, not a group: a hyperparameter's range, or a length."""
    return isinstance(value.get("type"), str) or (bool(value) and value.keys() <= {"batches", "epochs"})


def _searcher(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    if "name" in before and after.get("name", before["name"]) != before["name"]:
        before = {name: before[name] for name in SEARCHER_FIELDS_KEPT if name in before}
    merged_: dict[str, Any] = _merged(before, after)
    return merged_


def nested(paths: Mapping[str, Any]) -> dict[str, Any]:
    """`{"searcher.max_trials": 8}` as `{"searcher": {"max_trials": 8}}`. Raises OverrideError."""
    result: dict[str, Any] = {}
    for path, value in paths.items():
        *groups, last = path.split(".")
        if not last or not all(groups):
            raise OverrideError(path, "is not a path of the configuration, such as hyperparameters.batch_size")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise OverrideError(path, "is set twice, as a value and as a group")
        place[last] = value
    return result


def dotted(overrides: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The values that overrides set, as JSON, by path."""
    found: dict[str, str] = {}
    for name, value in overrides.items():
        if isinstance(value, Mapping) and value and not is_whole(value):
            found |= dotted(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = json.dumps(value, sort_keys=True)
    return found


def reproduction(
    config: Mapping[str, Any], experiment_seed: int, trial: str, hyperparameters: Mapping[str, Any], seed: int, length: int
) -> dict[str, Any]:
    """One trial again: its hyperparameters and its seed, up to `length` in the unit of `searcher.max_length`."""
    searcher = config["searcher"]
    return {
        **config,
        "name": _named(config["name"], f"reproduction of {trial}"),
        "hyperparameters": constants(hyperparameters, config.get("hyperparameters") or {}),
        "searcher": {
            "name": "single",
            "metric": searcher["metric"],
            "smaller_is_better": searcher["smaller_is_better"],
            "max_length": {_unit(searcher): length},
            "trial_seed": seed,
        }
        | ({"source_checkpoint": start} if (start := searcher.get("source_checkpoint")) else {}),
        "reproducibility": {**(config.get("reproducibility") or {}), "experiment_seed": experiment_seed},
    }


def _unit(searcher: Mapping[str, Any]) -> str:
    return "epochs" if searcher["max_length"].get("epochs") is not None else "batches"


def constants(values: Mapping[str, Any], space: Mapping[str, Any]) -> dict[str, Any]:
    """Drawn hyperparameters as a search space of one point. `space` tells a group from a value that is a mapping itself."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        spec = space.get(name)
        group = isinstance(value, Mapping) and not (isinstance(spec, Mapping) and isinstance(spec.get("type"), str))
        if group:
            result[name] = constants(value, spec if isinstance(spec, Mapping) else {})
        elif isinstance(value, Mapping):
            result[name] = {"type": "categorical", "vals": [value]}
        else:
            result[name] = {"type": "const", "val": value}
    return result


def fork(config: Mapping[str, Any], experiment_id: int, experiment_seed: int, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The same but for the overrides; the seed stays, so that nothing else differs. Raises OverrideError."""
    if "template" in overrides:
        raise OverrideError("template", "is for new experiments; a fork has the recorded configuration, which needs none")
    seeded = {
        **as_given(config),
        "name": _named(config["name"], f"fork of {experiment_id}"),
        "reproducibility": {**(config.get("reproducibility") or {}), "experiment_seed": experiment_seed},
    }
    return merged(seeded, overrides)


def continuation(
    config: Mapping[str, Any], experiment_id: int, experiment_seed: int, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """The same search with the same seed, so that its trials are the same ones, but longer or with more of them. Raises
    OverrideError where an override would make them other trials."""
    for path in dotted(overrides):
        if not _is_among(path, CONTINUED_FIELDS) or _is_among(path, FIXED_FIELDS):
            raise OverrideError(
                path,
                "cannot change when an experiment is continued, because its trials go on from their checkpoints; "
                "`tenuto exp fork` starts anew with other settings",
            )
    seeded = {
        **config,
        "name": _named(config["name"], f"continuation of {experiment_id}"),
        "reproducibility": {**(config.get("reproducibility") or {}), "experiment_seed": experiment_seed},
    }
    result = merged(seeded, overrides)
    if _goes_on(config["searcher"]["max_length"], result["searcher"]["max_length"]):
        return result  # at the rungs at which its trials were compared already
    return merged(as_given(seeded), overrides)


def _goes_on(before: Mapping[str, Any], after: Any) -> bool:
    """True for a length in the same unit that is no shorter."""
    unit = "epochs" if before.get("epochs") is not None else "batches"
    length = after.get(unit) if isinstance(after, Mapping) else None
    return isinstance(length, int) and length >= before[unit]


def with_validations(source: TrialSource, found: Sequence[tuple[int, int, float]]) -> TrialSource:
    """Copy of the source with the trial's validations up to its checkpoint. `found`: (batches, length, metric), in order."""
    reached = {length: metric for batches, length, metric in reversed(found) if batches <= source.batches}
    kept = tuple(RecordedValidation(length=length, metric=reached[length]) for length in thinned(sorted(reached)))
    return source.model_copy(update={"validations": kept})


def thinned(lengths: Sequence[int]) -> list[int]:
    """Selection of at most VALIDATIONS_KEPT_MAX of rising lengths, the first and the last among them. Rungs are a factor apart,
    so the selected lengths are about a factor apart, too."""
    if len(lengths) <= VALIDATIONS_KEPT_MAX:
        return list(lengths)
    low, high = max(1, lengths[0]), lengths[-1]
    marks = [low * (high / low) ** (step / (VALIDATIONS_KEPT_MAX - 1)) for step in range(VALIDATIONS_KEPT_MAX)]
    return sorted({*(lengths[min(bisect_left(lengths, mark), len(lengths) - 1)] for mark in marks)})


def _is_among(path: str, fields: Collection[str]) -> bool:
    return any(path == field or path.startswith(f"{field}.") for field in fields)


def _named(name: str, what: str) -> str:
    base = name.partition(" (")[0] if name.endswith(")") and " of " in name.rpartition(" (")[2] else name
    return f"{base[: NAME_CHARACTERS_MAX - len(what) - 3]} ({what})"
