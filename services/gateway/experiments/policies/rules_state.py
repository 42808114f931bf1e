"""State of the rules of experiments and workspaces: number of actions of each, and the values that it compares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.automation import Rule
from tenuto.services.gateway.notices.state import TriggerStatus


@dataclass(frozen=True)
class Ruled:
    """An experiment with rules of its own, or of its workspace."""

    triggers: tuple[Rule, ...]
    acted: tuple[int, ...]
    """Times that each has acted."""
    user: str
    """Submitter of the experiment, or who set the rules of the workspace: notices go to a webhook of this user."""
    seed: int = 0
    context_hash: str = ""
    context_size_bytes: int = 0
    config: ExperimentConfig | None = None
    """Configuration for rules that fork it. None: no rule does."""
    marks: Map[str, TriggerStatus] = field(default_factory=Map)
    workspace: str = ""
    """Workspace whose rules they are. Empty: they are the experiment's own."""


class WorkspaceRules(NamedTuple):
    rules: tuple[Rule, ...]
    user: str
    """User who set them."""


@dataclass(frozen=True)
class Acting:
    experiments: Map[int, Ruled] = field(default_factory=Map)
    """Experiments with rules of their own that the search has not ended."""
    ended: tuple[int, Ruled] | None = None
    """The one that ended last: its end is folded before it is decided on."""
    workspaces: Map[str, WorkspaceRules] = field(default_factory=Map)
    """Rules of workspaces, by workspace; those without rules are left out."""
    placed: Map[int, Ruled] = field(default_factory=Map)
    """Experiments with rules of their workspace, that the search has not ended."""
    placed_ended: tuple[int, Ruled] | None = None

    def ruled(self, experiment_id: int | None) -> list[Ruled]:
        """The experiment with its own rules, and with those of its workspace; nothing where it has none."""
        found = (_of(self.experiments, self.ended, experiment_id), _of(self.placed, self.placed_ended, experiment_id))
        return [item for item in found if item is not None]

    def with_ruled(self, experiment_id: int, ruled: Ruled) -> Acting:
        known, ended = (self.placed, self.placed_ended) if ruled.workspace else (self.experiments, self.ended)
        if ended is not None and ended[0] == experiment_id:
            ended = (experiment_id, ruled)
        else:
            known = known.set(experiment_id, ruled)
        return self._with(known, ended, bool(ruled.workspace))

    def without(self, experiment_id: int) -> Acting:
        """Copy after the experiment's end."""
        found = self
        for ruled in self.ruled(experiment_id):
            known = self.placed if ruled.workspace else self.experiments
            known = known.delete(experiment_id) if experiment_id in known else known
            found = found._with(known, (experiment_id, ruled), bool(ruled.workspace))
        return found

    def _with(self, known: Map[int, Ruled], ended: tuple[int, Ruled] | None, placed: bool) -> Acting:
        if placed:
            return replace(self, placed=known, placed_ended=ended)
        return replace(self, experiments=known, ended=ended)


def _of(known: Map[int, Ruled], ended: tuple[int, Ruled] | None, experiment_id: int | None) -> Ruled | None:
    if experiment_id is None:
        return None
    return ended[1] if ended is not None and ended[0] == experiment_id else known.get(experiment_id)
