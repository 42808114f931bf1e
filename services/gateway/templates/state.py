"""Present templates of configurations, and the defaults of workspaces. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from immutables import Map

from tenuto.schemas.config.layers import Layer
from tenuto.schemas.record import LayerKind
from tenuto.services.gateway.rights.state import PeopleState

PER_WORKSPACE_MAX = 100
TEMPLATES_MAX = 1_000
"""Most templates in the whole cluster."""
ALL_BYTES_MAX = 4 << 20
"""Most bytes of all templates as JSON: they are part of the gateway's state, which is kept in memory and written into each
snapshot."""


@dataclass(frozen=True)
class Template:
    version: int
    digest: str
    text: str
    """Configuration as JSON, with sorted names."""


@dataclass(frozen=True)
class Templates:
    kept: Map[str, Template] = field(default_factory=Map)
    """Templates by `workspace/name`. Without a workspace: of the whole cluster. Without a name: the defaults of the workspace."""

    def find(self, workspace: str, name: str) -> Template | None:
        return self.kept.get(f"{workspace}/{name}")

    def named(self) -> Iterator[tuple[str, str, Template]]:
        """(workspace, name, template), without the defaults."""
        for key in sorted(self.kept):
            workspace, _, name = key.partition("/")
            if name:
                yield workspace, name, self.kept[key]

    @property
    def all_bytes(self) -> int:
        return sum(len(self.kept[key].text) for key in sorted(self.kept))


NOTHING = "{}"
"""Text of defaults that were removed; their version goes on."""


def layer(templates: Templates, workspace: str, name: str) -> Layer | None:
    """Layer of a template; without a name, of the defaults of the workspace. None if it is missing or sets nothing."""
    found = templates.find(workspace, name)
    if found is None or found.text == NOTHING:
        return None
    kind: LayerKind = "template" if name else "defaults"
    return Layer(kind, name, workspace, found.version, found.digest, json.loads(found.text))


@dataclass(frozen=True)
class TemplatesState(PeopleState):
    """The gateway's record of templates: their workspaces and contents."""

    templates: Templates = field(default_factory=Templates)
    """Templates of configurations, and the defaults of workspaces."""
