"""The conversion of a whole configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.cli.from_determined.entrypoints import convert_entrypoint
from tenuto.cli.from_determined.lengths import DeterminedLengths
from tenuto.cli.from_determined.notes import Kind, Note, Notes, mapping
from tenuto.cli.from_determined.searching import convert_searcher
from tenuto.cli.from_determined.settings import (
    convert_environment,
    convert_log_policies,
    convert_optimizations,
    convert_resources,
    convert_storage,
)
from tenuto.cli.from_determined.spaces import convert_space
from tenuto.schemas.config.determined_fields import CARRIED_VARIABLE, FIELDS
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.schemas.config.experiment import NAME_CHARACTERS_MAX
from tenuto.schemas.config.reading import validated

LOG_BATCHES = 100
"""Determined's default of scheduling_unit: batches between two reports of training metrics."""
UNTOLD = {"internal", "debug", "data_layer", "preemption_timeout", "retention_policy", "hyperparameter"}
"""Fields without any effect on a training, whose default or false value is not worth a sentence."""
CARRIED = ("data", "records_per_epoch")
"""Fields that Tenuto does not have and code asks for: they are kept in a variable of the environment, where the module
`determined` of a worker finds them."""


@dataclass(frozen=True)
class Conversion:
    """Result of `convert`."""

    config: dict[str, Any] | None
    """The configuration in Tenuto's form, which its validation accepts; None if it is refused."""
    notes: tuple[Note, ...]
    """Notes on the fields that are not carried over unchanged."""

    @property
    def is_whole(self) -> bool:
        """True if the experiment is converted, and nothing of it is left out."""
        return self.config is not None and not any(note.kind is Kind.LEFT_OUT for note in self.notes)


def convert(document: Mapping[str, Any]) -> Conversion:
    """Tenuto's form of a configuration of Determined, as plain data."""
    notes = Notes()
    document = {str(name): value for name, value in document.items() if value is not None}
    result = _head(document, notes)
    entrypoint = convert_entrypoint(document.pop("entrypoint", None), notes)
    lengths = DeterminedLengths.of(document, entrypoint.is_script, notes)
    result["entrypoint"] = entrypoint.words
    space = mapping(document, "hyperparameters", notes)
    searcher = mapping(document, "searcher", notes)
    if space:
        result["hyperparameters"] = convert_space(space, notes, grid=searcher.get("name") == "grid")
    result["searcher"] = convert_searcher(searcher, lengths, notes)
    _periods(document, result, lengths)
    resources = convert_resources(mapping(document, "resources", notes), notes)
    _workspace(document, resources, notes)
    result["resources"] = resources
    if document.get("checkpoint_policy") is not None:
        result["checkpoint_policy"] = document["checkpoint_policy"]
    result["checkpoint_storage"] = convert_storage(mapping(document, "checkpoint_storage", notes), notes)
    result["optimizations"] = convert_optimizations(mapping(document, "optimizations", notes), notes)
    environment = convert_environment(mapping(document, "environment", notes), notes)
    _carry(document, lengths, environment, notes)
    result["environment"] = environment
    result["log_policies"] = convert_log_policies(document.get("log_policies"), notes)
    for name in ("max_restarts", "reproducibility"):
        if name in document:
            result[name] = document[name]
    if entrypoint.strategy:
        result["distributed"] = {"strategy": entrypoint.strategy}
    _rest(document, notes)
    return _checked({name: value for name, value in result.items() if value not in (None, {}, [])}, notes)


def _checked(config: dict[str, Any], notes: Notes) -> Conversion:
    """The result, with the refusals of Tenuto's own validation if there are any."""
    if not notes.refuses:
        try:
            validated(config)
        except ConfigError as error:
            for problem in error.problems:
                notes.found.append(_refusal(problem))
    return Conversion(None if notes.refuses else config, tuple(notes.found))


def _refusal(problem: Problem) -> Note:
    return Note(problem.path or "configuration", Kind.REFUSED, problem.message, problem.value)


def _head(document: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Name, description and labels."""
    name, description = document.pop("name", None), document.pop("description", None)
    head = {} if name is None else {"name": name}
    if name is None and isinstance(description, str) and 0 < len(description) <= NAME_CHARACTERS_MAX and "\n" not in description:
        head["name"] = description
        notes.changed("description", "is the experiment's name, as there is none")
    elif description:
        head["description"] = description
    labels = document.pop("labels", None) or []
    project = document.pop("project", None)
    if isinstance(project, str) and project and isinstance(labels, list):
        labels = [*labels, project]
        notes.changed("project", f"is the label {json.dumps(project)}, by which experiments are found")
    return {**head, "labels": labels}


def _periods(document: dict[str, Any], result: dict[str, Any], lengths: DeterminedLengths) -> None:
    for name in ("min_validation_period", "min_checkpoint_period"):
        period = lengths.period(name, document.pop(name, None))
        if period is not None:
            result[name] = period
    if lengths.log_batches is not None:
        result["log_period"] = {"batches": lengths.log_batches}


def _workspace(document: dict[str, Any], resources: dict[str, Any], notes: Notes) -> None:
    workspace = document.pop("workspace", None)
    if workspace:
        resources["workspace"] = workspace
        notes.changed("workspace", "is resources.workspace")


def _carry(document: dict[str, Any], lengths: DeterminedLengths, environment: dict[str, Any], notes: Notes) -> None:
    """Puts what code may ask for into the environment."""
    carried: dict[str, Any] = {name: document.pop(name) for name in CARRIED if document.get(name)}
    for name in CARRIED:
        document.pop(name, None)
    if lengths.script_decides:
        carried["length"] = "script"
    if carried:
        environment.setdefault("variables", {})[CARRIED_VARIABLE] = json.dumps(carried, sort_keys=True)
        named = [name for name in carried if name in CARRIED]
        if named:
            notes.changed(
                " and ".join(named),
                f"found by code that imports determined, in the variable {CARRIED_VARIABLE} of the environment",
            )


def _rest(document: dict[str, Any], notes: Notes) -> None:
    handled = {"hyperparameters", "searcher", "resources", "checkpoint_policy", "checkpoint_storage", "optimizations"}
    handled |= {"environment", "log_policies", "max_restarts", "reproducibility"}
    for name, value in document.items():
        if name in handled or (name in UNTOLD and not value):
            continue
        if name in _RULES:
            _RULES[name](name, value, notes)
        elif name in FIELDS:
            notes.left_out(name, FIELDS[name].removeprefix("leave it out: ").removeprefix("leave it out, and "), value)
        else:
            notes.refused(name, "Determined has no such field, nor has Tenuto", value)


def _mounts(name: str, value: Any, notes: Notes) -> None:
    for index, mount in enumerate(value if isinstance(value, list) else [value]):
        there, inside = (mount.get("host_path"), mount.get("container_path")) if isinstance(mount, dict) else (None, None)
        if there == inside:
            sentence = "your code sees the agent's directories as they are, so this one is where the code looks for it"
        else:
            sentence = (
                f"there is no container: your code finds {inside} at {there}, its place on the agent; change that path in it"
            )
        notes.left_out(f"{name}[{index}]", sentence)


def _profiling(name: str, value: Any, notes: Notes) -> None:
    if isinstance(value, dict) and value.get("enabled"):
        notes.left_out(name, "use your framework's profiler")


def _initial_validation(name: str, value: Any, notes: Notes) -> None:
    if value:
        notes.left_out(name, "a trial is not validated before it trains", value)


_RULES: Mapping[str, Callable[[str, Any, Notes], None]] = {
    "bind_mounts": _mounts,
    "profiling": _profiling,
    "perform_initial_validation": _initial_validation,
}
