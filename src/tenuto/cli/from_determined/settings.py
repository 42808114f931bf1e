"""Sections of the configuration that are settings: resources, environment, checkpoint storage, optimizations, log policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto.cli.from_determined.notes import Notes
from tenuto.schemas.config.determined_fields import FIELDS
from tenuto.schemas.config.storage import DECLARED

SAVES = ("save_experiment_best", "save_trial_best", "save_trial_latest")
PROCESSORS = ("cuda", "gpu", "cpu", "rocm")
"""Kinds of slots for which Determined has variables of their own. `gpu` is an older name of `cuda`."""


def _left_out(section: str, given: Mapping[str, Any], notes: Notes) -> None:
    """Says of each remaining field why it is not carried over."""
    for name, value in given.items():
        path = f"{section}.{name}"
        if path in FIELDS:
            notes.left_out(path, FIELDS[path].removeprefix("leave it out: "), value)
        else:
            notes.refused(path, "Determined has no such field, nor has Tenuto", value)


def convert_resources(given: dict[str, Any], notes: Notes) -> dict[str, Any]:
    given = {name: value for name, value in given.items() if value is not None}
    found: dict[str, Any] = {
        name: given.pop(name) for name in ("slots_per_trial", "max_slots", "priority", "weight") if name in given
    }
    if "slots" in given:
        found.setdefault("slots_per_trial", given.pop("slots"))
        notes.changed("resources.slots", "is slots_per_trial")
    if pool := given.pop("resource_pool", None):
        found["pool"] = pool
        notes.changed("resources.resource_pool", "is resources.pool; `tenuto pool ls` lists those that there are")
    if given.pop("is_single_node", None):
        found["locality"] = "agent"
        notes.changed("resources.is_single_node", "is locality: agent")
    for name in ("native_parallel", "devices", "agent_label"):
        if not given.get(name):
            given.pop(name, None)
    _left_out("resources", given, notes)
    return found


def convert_storage(given: dict[str, Any], notes: Notes) -> dict[str, Any]:
    found = {name: given[name] for name in SAVES if given.get(name) is not None}
    rest = {name: value for name, value in given.items() if name not in SAVES and value is not None}
    declared = [name for name in rest if name in DECLARED or name == "save_all"]
    if declared:
        notes.left_out(
            "checkpoint_storage." + ", ".join(declared),
            "the operator declares stores (`tenuto store create`), and an experiment names one with checkpoint_storage.store; "
            "without it checkpoints go into the cluster's own directory",
        )
    _left_out("checkpoint_storage", {name: value for name, value in rest.items() if name not in declared}, notes)
    return found


def convert_optimizations(given: dict[str, Any], notes: Notes) -> dict[str, Any]:
    given = {name: value for name, value in given.items() if value is not None}
    plain = ("aggregation_frequency", "average_aggregated_gradients")
    found: dict[str, Any] = {name: given.pop(name) for name in plain if name in given}
    precision = given.pop("mixed_precision", "O0")
    if precision != "O0":
        notes.left_out(
            "optimizations.mixed_precision",
            "that is a level of NVIDIA's apex, which Tenuto does not use; mixed_precision: fp16 or bf16 is torch.autocast",
            precision,
        )
    defaults: dict[str, Any] = {"average_training_metrics": True, "gradient_compression": False, "auto_tune_tensor_fusion": False}
    _left_out("optimizations", {name: value for name, value in given.items() if defaults.get(name, object()) != value}, notes)
    return found


REGISTRY_AUTH = (
    "put the user and the password into a secret (`tenuto secret set NAME`), as JSON, and write environment.registry_auth: NAME "
    "beside environment.image"
)


def convert_environment(given: dict[str, Any], notes: Notes) -> dict[str, Any]:
    given = {name: value for name, value in given.items() if value not in (None, [], {}, False)}
    variables = _variables(given.pop("environment_variables", None), notes)
    if "image" in given:
        sentence = "a trial runs in the Python environment of its agent; to run it in an image, set environment.image here"
        notes.left_out("environment.image", sentence, given.pop("image"))
    _left_out("environment", {name: value for name, value in given.items() if name != "registry_auth"}, notes)
    if "registry_auth" in given:  # its value is a password
        notes.left_out("environment.registry_auth", REGISTRY_AUTH)
    return {"variables": variables} if variables else {}


def _variables(value: Any, notes: Notes) -> dict[str, str]:
    path = "environment.environment_variables"
    if value is None:
        return {}
    lists = value if isinstance(value, dict) else {"all": value}
    if not all(isinstance(items, list) and all(isinstance(item, str) for item in items) for items in lists.values()):
        notes.refused(path, 'must be a list of texts such as "NAME=value"')
        return {}
    if isinstance(value, dict) and set(value) - set(PROCESSORS):
        notes.refused(path, f"has lists for {', '.join(sorted(map(str, value)))}; there may be those for {', '.join(PROCESSORS)}")
        return {}
    parts = {kind: _assignments(path, items, notes) for kind, items in lists.items()}
    found: dict[str, str] = {}
    for kind in ("all", *PROCESSORS):
        for name, text in parts.get(kind, {}).items():
            if found.setdefault(name, text) != text:
                notes.left_out(f"{path}.{kind}", f"{name} has another value here; a trial has one set of variables on any slots")
    if found:
        notes.changed(path, "is the mapping environment.variables")
    return found


def _assignments(path: str, items: list[str], notes: Notes) -> dict[str, str]:
    found = {}
    for index, item in enumerate(items):
        name, equals, text = item.partition("=")
        if equals:
            found[name] = text
        else:
            notes.left_out(f"{path}[{index}]", f"{name} has no value; an agent's own variables are not handed to trials")
    return found


def convert_log_policies(value: Any, notes: Notes) -> list[dict[str, str]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        notes.refused("log_policies", "must be a list of policies", value)
        return []
    found = []
    for index, policy in enumerate(value):
        path, pattern, action = f"log_policies[{index}]", policy.get("pattern"), policy.get("action")
        kind = action.get("type") if isinstance(action, dict) else action
        if pattern is None:
            notes.left_out(path, "takes back one of Determined's own policies, of which Tenuto has none")
        elif kind == "exclude_node":
            found.append({"pattern": pattern, "action": "exclude_agent"})
            notes.changed(f"{path}.action", "exclude_node is exclude_agent")
        elif kind == "cancel_retries":
            notes.left_out(
                path, "a trial is not given up for a line that it prints; raise an error, and set max_restarts: 0 for all of them"
            )
        elif kind is None:
            notes.left_out(path, "only names a line; `tenuto exp logs` finds it")
        else:
            notes.left_out(path, "Tenuto has no such action", kind)
    return found
