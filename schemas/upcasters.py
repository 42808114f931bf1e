"""Upcasters: functions that bring old versions of event payloads up to date. Events are never rewritten; they are converted
when read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tenuto.schemas.config.storage import named


def _experiment_submitted_1(data: dict[str, Any]) -> dict[str, Any]:
    """Version 2 names a store. In version 1, the experiment itself said where its checkpoints go."""
    config = data["config"]
    return {**data, "config": {**config, "checkpoint_storage": named(config["checkpoint_storage"])}}


_CAUSES = {82: "invalid_hyperparameters", 83: "followed", 84: "infrastructure", 85: "hung", 86: "will_repeat"}


def cause_by_code(exit_code: object) -> str | None:
    """Cause of an end in an event or an agent's report of an older version, which told it by the exit code."""
    return _CAUSES.get(exit_code) if isinstance(exit_code, int) else None


def _exit_1(data: dict[str, Any]) -> dict[str, Any]:
    """Upcasts version 1, in which the exit code was the cause of the end, to version 2, which has `cause`."""
    return {**data, "cause": cause_by_code(data.get("exit_code"))}


# (type, from version) -> function on the decoded payload that returns the payload of version + 1.
UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    ("ExperimentSubmitted", 1): _experiment_submitted_1,
    ("GangPartReported", 1): _exit_1,
    ("WorkersExited", 1): _exit_1,
}


class UnreadableVersion(ValueError):
    """The log contains a version of an event type that this build cannot read."""


def upcast(type_: str, version: int, target: int, payload: bytes) -> bytes:
    if version > target:
        raise UnreadableVersion(
            f"{type_} version {version} was written by a newer Tenuto (this one knows up to {target}); upgrade this service."
        )
    data: dict[str, Any] = json.loads(payload)
    for step in range(version, target):
        convert = UPCASTERS.get((type_, step))
        if convert is None:
            raise UnreadableVersion(f"no upcaster reads {type_} version {step}.")
        data = convert(data)
    return json.dumps(data, separators=(",", ":")).encode()
