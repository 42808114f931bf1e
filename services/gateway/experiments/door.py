"""The door, with what the handlers of experiments need."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends

from tenuto.kernel.secrets import Secrets
from tenuto.services.gateway.experiments.adapters.importance import Importances
from tenuto.services.gateway.experiments.adapters.kept_decisions import KeptDecisions
from tenuto.services.gateway.experiments.adapters.past_views import PastViews
from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.templates.door import TemplatesDoor
from tenuto.services.gateway.trials.door import TrialsDoor


@dataclass(kw_only=True)
class ExperimentsDoor(TrialsDoor, TemplatesDoor):
    views: ExperimentQueries
    secrets: Secrets
    past: PastViews
    decisions: KeptDecisions
    importances: Importances = field(default_factory=Importances)

    @property
    def state(self) -> ExperimentsState:
        state: ExperimentsState = self.loop.state
        return state

    @property
    def contexts(self) -> Path:
        """The directory of packed model directories."""
        return Path(self.settings.shared_directory) / "contexts"


Door = Annotated[ExperimentsDoor, Depends(door_of(ExperimentsDoor))]
"""A handler's parameter of this type is given the door of its subject."""
