"""The door, with what the handlers of MLflow's protocol need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import asyncpg
from fastapi import Depends

from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.http.plugin_doors import PluginDoor
from tenuto.services.gateway.mlflow.adapters.files import Artifacts
from tenuto.services.gateway.mlflow.adapters.run_data import RunData
from tenuto.services.gateway.mlflow.adapters.run_models import RunModels
from tenuto.services.gateway.mlflow.queries.models import Models
from tenuto.services.gateway.mlflow.queries.runs import RunQueries


@dataclass(kw_only=True)
class MlflowDoor(PluginDoor):
    runs: RunQueries
    run_data: RunData
    models: Models
    run_models: RunModels
    artifacts: Artifacts

    @property
    def state(self) -> ExperimentsState:
        state: ExperimentsState = self.loop.state
        return state

    async def forget(self, experiment_id: int) -> None:
        """Removes what the runs of a deleted experiment logged; others logged nothing."""
        await self.artifacts.delete_experiment(experiment_id)
        await self.run_data.delete_experiment(experiment_id)

    async def clean(self) -> None:
        await self.artifacts.clean()


def make_door(base: BaseDoor, pool: asyncpg.Pool) -> MlflowDoor:
    directory = Path(base.settings.shared_directory) / "artifacts"
    return base.with_parts(
        MlflowDoor,
        runs=RunQueries(pool),
        run_data=RunData(pool),
        models=Models(pool),
        run_models=RunModels(pool),
        artifacts=Artifacts(pool, directory, base.settings.artifact_bytes_max),
    )


Door = Annotated[MlflowDoor, Depends(door_of(MlflowDoor))]
"""A handler's parameter of this type is given the door of its subject."""
