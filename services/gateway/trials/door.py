"""The door, with the parts that the handlers of trials need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from tenuto.kernel.storage.stores import Stores
from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.trials.adapters.verifying import Verifier
from tenuto.services.gateway.trials.queries.metric_tables import MetricTables
from tenuto.services.gateway.trials.queries.trials import TrialQueries


@dataclass(kw_only=True)
class TrialsDoor(BaseDoor):
    views: TrialQueries
    tables: MetricTables
    stores: Stores
    """Stores of checkpoints, as the operator declared them."""
    verifier: Verifier


Door = Annotated[TrialsDoor, Depends(door_of(TrialsDoor))]
"""A handler's parameter of this type is given the door of its subject."""
