"""Makes the configuration of a new experiment from the configuration sent, its template, and the defaults of its workspace."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.schemas.base import from_object
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.schemas.config.layers import TEMPLATE, Layer, Value
from tenuto.schemas.record import ConfigLayer
from tenuto.services.gateway.http.context import asking
from tenuto.services.gateway.reader.reader import ConfigDraft
from tenuto.services.gateway.rights.access import DEFAULT
from tenuto.services.gateway.rights.permissions import CREATES_EXPERIMENT, refusal
from tenuto.services.gateway.rights.workspaces import check_place
from tenuto.services.gateway.templates.door import TemplatesDoor
from tenuto.services.gateway.templates.state import layer


@dataclass(frozen=True)
class Resolution:
    config: ExperimentConfig
    layers: tuple[ConfigLayer, ...]
    """Layers that were merged under it, the more specific first."""
    sent_hash: str
    values: Sequence[Value] = ()
    """All values of the configuration, if they were asked for."""
    notes: tuple[str, ...] = ()
    """Sentences on values sent that YAML 1.1 reads otherwise."""


async def resolve(door: TemplatesDoor, text: bytes, said: Sequence[str] | None = None) -> Resolution:
    """Configuration of a new experiment. `said`: paths that the command line set; with them the answer has every value and its
    source. Raises ConfigError, Refused and ReaderBusy."""
    draft = await door.reader.config(text, asking())
    await door.users_known()  # and with them the templates
    layers = _under(door, draft)
    sent_hash = hashlib.sha256(text).hexdigest()
    if not layers and draft.config is None:
        raise ConfigError(draft.problems)
    if not layers and said is None:
        assert draft.config is not None
        return Resolution(draft.config, (), sent_hash, notes=tuple(draft.notes))
    merged = await door.reader.layered(text, layers, said, asking())
    recorded = tuple(
        from_object(ConfigLayer, found, paths=tuple(paths), more=count - len(paths))
        for found, (count, paths) in zip(layers, merged.paths, strict=True)
    )
    return Resolution(merged.config, recorded, sent_hash, merged.values, tuple(draft.notes))


def _under(door: TemplatesDoor, draft: ConfigDraft) -> list[Layer]:
    """Layers under the configuration sent. Raises ConfigError for a missing template, and Refused if the user may not submit:
    settings of a private workspace are not shown."""
    state, found = door.state, list[Layer]()
    workspace = draft.workspace
    if wrong := [problem for problem in draft.problems if problem.path == TEMPLATE]:
        raise ConfigError(wrong)
    if draft.template is not None:
        place, own = workspace or DEFAULT, None
        if not refusal(state.access, door.subject(), CREATES_EXPERIMENT, workspace=place):
            own = layer(state.templates, place, draft.template)
        template = own or layer(state.templates, "", draft.template)
        if template is None:
            hint = "`tenuto template ls` lists those that you see"
            why = f"there is no such template of workspace {place} or of the whole cluster; {hint}"
            raise ConfigError([Problem(TEMPLATE, why, f'"{draft.template}"')])
        found.append(template)
        workspace = workspace or template.config.get("resources", {}).get("workspace", "")
    workspace = workspace or DEFAULT
    defaults = layer(state.templates, workspace, "")
    if defaults is not None:
        check_place(state, door.subject(), workspace, "")
        found.append(defaults)
    return found
