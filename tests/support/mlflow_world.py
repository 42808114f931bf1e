"""MLflow's own client and the gateway that it logs to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.gateway_world import World, gateway_world

API = "/mlflow/api/2.0/mlflow"
FILES = "/mlflow/api/2.0/mlflow-artifacts/artifacts"
T = TypeVar("T")


@contextlib.asynccontextmanager
async def mlflow_world(database: Any, tmp_path: Path, artifact_bytes_max: int = 1 << 20) -> AsyncIterator[World]:
    """A gateway, to which MLflow's functions in this process log as its admin."""
    import mlflow
    from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

    async with gateway_world(database, tmp_path, artifact_bytes_max=artifact_bytes_max) as made:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_TOKEN", (tmp_path / "token").read_text().strip())
            patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
            _artifact_repos_cache.clear()  # by the run's id alone, which each gateway of these tests has
            mlflow.set_tracking_uri(uri(made))
            yield made


def uri(world: World) -> str:
    return f"http://127.0.0.1:{world.service.port}/mlflow"


async def do(work: Callable[..., T], *arguments: Any) -> T:
    """The client blocks, and the gateway that it asks runs on this event loop."""
    return await asyncio.to_thread(work, *arguments)
