"""Problems of an experiment configuration: path, bad value, and what is allowed."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tenuto.schemas.config import determined_fields, entrypoint, hyperparameters, searchers
from tenuto.schemas.config.experiment import ExperimentConfig
from tenuto.schemas.config.length import Length
from tenuto.schemas.config.resources import SLOTS_PER_TRIAL_MAX

SHOWN_VALUE_CHARACTERS_MAX = 80
PROBLEMS_SHOWN_MAX = 20


def _members(union: Any, tag: str) -> dict[str, type[BaseModel]]:
    """Models of a union by the value of `tag`, the field that tells them apart."""
    return {get_args(model.model_fields[tag].annotation)[0]: model for model in get_args(get_args(union)[0])}


_SEARCHERS = _members(searchers.OwnSearcher, "name")
_PATTERNS = {
    "account": "the name of a storage account: 3 to 24 small letters and digits",
    "bucket": "the name of a bucket: 3 to 63 small letters, digits, dots and hyphens",
    "container": "the name of a container: 3 to 63 small letters, digits and hyphens",
    "endpoint": "an address such as https://minio.example.com:9000",
    "prefix": "a path such as team/checkpoints, without a slash at either end",
}
_HYPERPARAMETERS: dict[str, type[BaseModel]] = {
    "const": hyperparameters.ConstHyperparameter,
    "int": hyperparameters.IntHyperparameter,
    "double": hyperparameters.DoubleHyperparameter,
    "log": hyperparameters.LogHyperparameter,
    "categorical": hyperparameters.CategoricalHyperparameter,
}
Location = tuple[int | str, ...]
Place = tuple[str, type[BaseModel] | None, str]
"""Path as the user wrote it, the model that holds its last part, and the last part."""


@dataclass(frozen=True)
class Problem:
    path: str
    """Path such as `searcher.max_trials`; empty for the file as a whole."""
    message: str
    """Sentence with the problem and what is allowed."""
    value: str = ""
    """Bad value as JSON, shortened; empty if there is none."""

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        found = f" (found {self.value})" if self.value else ""
        return f"{where}{self.message}{found}"


class ConfigError(ValueError):
    """The configuration is refused. `problems` holds every problem found; `str(error)` shows them, one per line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN_MAX]]
        if len(self.problems) > PROBLEMS_SHOWN_MAX:
            lines.append(f"... and {len(self.problems) - PROBLEMS_SHOWN_MAX} more")
        super().__init__("\n".join(lines))


def explain(error: ValidationError) -> list[Problem]:
    """pydantic's errors as problems in the user's words. A value with several errors (a union) is named once."""
    return _explained(error, _resolve)


def explain_settings(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """The same of a search method's own settings. `model`: of these."""
    return _explained(error, lambda location: _below(["searcher", "settings"], model, location))


def _explained(error: ValidationError, resolve: Callable[[Location], Place]) -> list[Problem]:
    problems: dict[str, Problem] = {}
    listed: set[type[BaseModel] | None] = set()
    for item in error.errors(include_url=False):
        path, model, field = resolve(item["loc"])
        if path in problems:
            continue
        kind = str(item["type"])
        missing = kind in ("missing", "union_tag_not_found")
        if kind == "extra_forbidden":
            message = _no_such_field(path, model, field, listed)
        else:
            message = _message(kind, item.get("ctx", {}), str(item["msg"]), model, field)
        shown = item["input"]
        if kind == "union_tag_not_found":
            path = f"{path}.name"
        elif kind == "union_tag_invalid":
            path, shown = f"{path}.{'name' if path == 'searcher' else 'type'}", item["ctx"]["tag"]
        whole = not path or (kind == "value_error" and isinstance(item["input"], Mapping))
        # A field that a store does not have may hold a key or a password, so its value is not repeated.
        secret = path.startswith("checkpoint_storage.") and kind == "extra_forbidden"
        problems[path] = Problem(path, message, "" if missing or whole or secret else show(shown))
    return list(problems.values())


def _resolve(location: Location) -> Place:
    """pydantic's location also names the chosen member of a union, which is not in the user's file."""
    parts: list[str] = []
    model: type[BaseModel] | None = ExperimentConfig
    field = ""
    steps = iter(location)
    for step in steps:
        if step == "[key]":
            continue
        field = str(step)
        parts.append(f"[{step}]" if isinstance(step, int) else field)
        if len(parts) == 1 and field == "searcher":
            if next(steps, None) == "plugin":
                return _below(parts, searchers.PluginSearcher, tuple(steps))
            tag = next(steps, None)
            model = _SEARCHERS.get(str(tag))
            rest = tuple(steps)
            return _below(parts, model, rest) if rest else (field, ExperimentConfig, field)
        if len(parts) == 1 and field == "hyperparameters":
            return _resolve_hyperparameter(parts, steps)
        return _below([], ExperimentConfig, location)
    return _join(parts), model, field


def _resolve_hyperparameter(parts: list[str], steps: Iterator[int | str]) -> Place:
    for name in steps:
        if name == "[key]":
            break
        parts.append(str(name))
        tag = next(steps, None)
        if tag in _HYPERPARAMETERS:
            rest = tuple(steps)
            # A constant's `val` is not in the file when it was written bare; its path is the name either way.
            return _below(parts, _HYPERPARAMETERS[str(tag)], () if tag == "const" and rest[:1] == ("val",) else rest)
    return _join(parts), None, parts[-1]


def _below(parts: list[str], model: type[BaseModel] | None, rest: Location) -> Place:
    field, holder = "", model
    rest = tuple(step for at, step in enumerate(rest) if not (step in ("number", "range") and rest[at - 1] == "slots_per_trial"))
    for index, step in enumerate(rest):
        parts = [*parts, f"[{step}]" if isinstance(step, int) else str(step)]
        field, holder = str(step), model
        inner = model.model_fields.get(field) if model is not None else None
        model = _model_of(inner.annotation) if inner is not None else None
        if model is None and index < len(rest) - 1 and inner is None:
            holder = None
    return _join(parts), holder, field


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for item in getattr(annotation, "__args__", ()) if (found := _model_of(item))), None)


def _join(parts: Sequence[str]) -> str:
    return ".".join(parts).replace(".[", "[")


def _message(kind: str, context: Mapping[str, Any], fallback: str, model: type[BaseModel] | None, field: str) -> str:
    allowed = _allowed(model, field)
    if kind == "missing" and field == "max_length":
        return f"is required: {allowed}, at which a trial has its full length"
    if kind == "missing":
        return "is required" + (f": {allowed}" if allowed else "")
    if kind == "union_tag_not_found":
        return f"is required: one of {', '.join(sorted(_SEARCHERS))}"
    if kind == "union_tag_invalid":
        name = str(context["tag"])
        return (
            no_such_method(name, _SEARCHERS)
            if field == "searcher"
            else _none_of("type of hyperparameter", name, _HYPERPARAMETERS)
        )
    if kind == "value_error":
        return str(context.get("error", fallback))
    if model is not None and field == "" and issubclass(model, hyperparameters.ConstHyperparameter):
        return "must be text, a number, true, false, null or a list"
    if kind in ("model_type", "model_attributes_type", "dict_type", "dict_attributes_type"):
        inner = Length if context.get("class_name") == "Length" else None
        return "must be {batches: N} or {epochs: N}" if inner else "must be a mapping of fields"
    if kind == "literal_error":
        return f"must be one of {str(context['expected']).replace(chr(39), '').replace(' or ', ', ')}"
    if kind == "string_pattern_mismatch" and field in _PATTERNS:
        return f"must be {_PATTERNS[field]}"
    if field == "pool" and kind == "string_pattern_mismatch":
        return "must be 1 to 63 letters, digits, _ or -"
    return f"must be {allowed}" if allowed else fallback[:1].lower() + fallback[1:]


def no_such_method(name: str, known: Iterable[str]) -> str:
    if instead := determined_fields.METHODS.get(name):
        return f"there is no such search method; write {instead}"
    return _none_of("search method", name, known)


def _none_of(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return f"there is no such {what}; {_did_you_mean(name, names)}it must be one of {', '.join(names)}"


def _no_such_field(path: str, model: type[BaseModel] | None, field: str, listed: set[type[BaseModel] | None]) -> str:
    """Message for an unknown field. `listed`: models whose fields were listed already; a list is shown once, and only if there
    is nothing better to say."""
    names = sorted(model.model_fields) if model is not None else []
    if hint := determined_fields.instead_of(_INDEX.sub("", path)):
        return f"there is no such field; {hint}"
    if hint := _did_you_mean(field, names):
        return f"there is no such field; {hint.strip()}"
    if model in listed or not names:
        return "there is no such field"
    listed.add(model)
    return f"there is no such field; allowed are {', '.join(names)}"


_INDEX = re.compile(r"\[\d+\]")


def _did_you_mean(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.75)
    return f"did you mean {near[0]}? " if near else ""


def _allowed(model: type[BaseModel] | None, field: str) -> str:
    """Description of a field's allowed values, from its type and bounds: "a whole number, at least 1"."""
    info = model.model_fields.get(field) if model is not None else None
    if info is None:
        return ""
    if field == "entrypoint":
        return entrypoint.EXPECTED
    if field == "slots_per_trial":
        return f"a whole number from 0 to {SLOTS_PER_TRIAL_MAX}, or {{min: N, max: M}} with N at least 1"
    if _model_of(info.annotation) is Length:
        return "{batches: N} or {epochs: N}"
    if field == "searcher":
        return f"a mapping with a name, one of {', '.join(sorted(_SEARCHERS))}"
    kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "text (in quotes if it looks like a number)"}
    candidates = [info.annotation, *getattr(info.annotation, "__args__", ())]
    origin = getattr(info.annotation, "__origin__", None)
    if origin in (list, dict):
        text = "a list" if origin is list else "a mapping"
    else:
        text = next((name for kind, name in kinds.items() if kind in candidates), "")
    words = {
        "ge": "at least",
        "gt": "above",
        "le": "at most",
        "lt": "below",
        "min_length": "length at least",
        "max_length": "length at most",
    }
    bounds = [f"{word} {getattr(item, name)}" for item in info.metadata for name, word in words.items() if hasattr(item, name)]
    return ", ".join(filter(None, [text, *bounds]))


def show(value: Any) -> str:
    """The value as JSON, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN_VALUE_CHARACTERS_MAX else text[: SHOWN_VALUE_CHARACTERS_MAX - 3] + "..."
