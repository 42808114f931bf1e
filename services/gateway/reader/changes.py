"""Changes between two model directories, and settings of a configuration to compare. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CodeChange:
    path: str
    """Path in the model directory."""
    kind: str
    """added, removed, changed, or comments: a Python file that does the same."""
    detail: str = ""
    """Changed lines."""
    before: str | None = None
    """Beginning of the file's hash before the change; None: the file was missing."""
    after: str | None = None
    settings: tuple[str, ...] = ()
    """Paths of the settings that changed, if the file is an experiment's configuration."""


def flat_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as path to value; constants and lengths are written as people write them."""
    return dict(flat(_plain(config)))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get("type") == "const" and "val" in value and not value.get("when"):
            return value["val"]
        if value.keys() == {"batches", "epochs"}:
            return f"{value['batches']} batches" if value["batches"] is not None else f"{value['epochs']} epochs"
        return {name: _plain(item) for name, item in value.items()}
    return value


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):  # an empty group says nothing
            yield from flat(item, f"{prefix}{name}.")
        elif isinstance(item, (list, tuple)):
            yield f"{prefix}{name}", json.dumps(item, sort_keys=True)
        else:
            yield f"{prefix}{name}", item
