"""Merges a configuration with what stands under it: its template, then the defaults of its workspace. Pure; plain data in and
out.

What is more specific counts: the configuration (with what the command line said) over the template, the template over the
defaults, these over what is built in. Groups are merged; hyperparameters, lengths and lists are replaced whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenuto.schemas.config.derive import is_whole, merged
from tenuto.schemas.record import ConfigLayer, LayerKind

TEMPLATE = "template"
"""Field of a configuration that names its template."""
Path = tuple[Any, ...]
"""Names from the top of a document down to a value."""


@dataclass(frozen=True)
class Layer:
    """Values that apply where a configuration says nothing: a template, or the defaults of a workspace or the cluster."""

    kind: LayerKind
    name: str
    workspace: str
    version: int
    digest: str
    config: Mapping[str, Any]


def named(layer: Layer | ConfigLayer) -> str:
    """Name of the layer for users, such as `template vision of workspace lab (version 3)`."""
    what = f"template {layer.name}" if layer.kind == "template" else "the defaults"
    where = f" of workspace {layer.workspace}" if layer.workspace else ""
    return f"{what}{where} (version {layer.version})"


class Value(NamedTuple):
    """One value of a merged configuration."""

    path: str
    value: Any
    source: int
    """0: the configuration, n: the n-th layer, BUILT_IN, or COMMAND_LINE."""


BUILT_IN, COMMAND_LINE = -1, -2


def combined(documents: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[Path, int]]:
    """(the merged document, each of its values -> the index of the document that gave it). The more specific comes first."""
    result: dict[str, Any] = {}
    given: dict[Path, int] = {}
    for index in range(len(documents) - 1, -1, -1):
        result = merged(result, documents[index], replaced=())
        given = {path: index if _has(documents[index], path) else given[path] for path, _ in leaves(result)}
    return result, given


def leaves(document: Mapping[Any, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Values of a configuration; what is always replaced whole is one value."""
    for name, value in document.items():
        if isinstance(value, Mapping) and value and not is_whole(value):
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _has(document: Any, path: Path) -> bool:
    for name in path:
        if not isinstance(document, Mapping) or name not in document:
            return False
        document = document[name]
    return True


def canonical(document: Mapping[str, Any]) -> str:
    """Canonical JSON, the same for equal documents. Raises ValueError or TypeError if a value does not exist in JSON."""
    return json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":"))


def digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(document).encode()).hexdigest()
