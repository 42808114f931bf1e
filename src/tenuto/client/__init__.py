"""The Python client of a cluster: `from tenuto import Client`. docs/client.md shows what it does."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.client.aio.checkpoints import AsyncCheckpoint
    from tenuto.client.aio.client import AsyncClient
    from tenuto.client.aio.experiments import AsyncExperiment
    from tenuto.client.aio.trials import AsyncTrial
    from tenuto.client.blocking.checkpoints import Checkpoint
    from tenuto.client.blocking.client import Client
    from tenuto.client.blocking.experiments import Experiment
    from tenuto.client.blocking.trials import Trial
    from tenuto.client.errors import Away, ClientError, Failed, Interrupted, NotCompleted, Refused, TimedOut, Unreachable
    from tenuto.client.events import Event
    from tenuto.client.tables import Table
    from tenuto.client.target import Target

__all__ = [
    "AsyncCheckpoint",
    "AsyncClient",
    "AsyncExperiment",
    "AsyncTrial",
    "Away",
    "Checkpoint",
    "Client",
    "ClientError",
    "Event",
    "Experiment",
    "Failed",
    "Interrupted",
    "NotCompleted",
    "Refused",
    "Table",
    "Target",
    "TimedOut",
    "Trial",
    "Unreachable",
]

_ERRORS = ("Away", "ClientError", "Failed", "Interrupted", "NotCompleted", "Refused", "TimedOut", "Unreachable")
_PLACES = {
    "AsyncCheckpoint": "tenuto.client.aio.checkpoints",
    "AsyncClient": "tenuto.client.aio.client",
    "AsyncExperiment": "tenuto.client.aio.experiments",
    "AsyncTrial": "tenuto.client.aio.trials",
    "Checkpoint": "tenuto.client.blocking.checkpoints",
    "Client": "tenuto.client.blocking.client",
    "Event": "tenuto.client.events",
    "Experiment": "tenuto.client.blocking.experiments",
    "Table": "tenuto.client.tables",
    "Target": "tenuto.client.target",
    "Trial": "tenuto.client.blocking.trials",
    **dict.fromkeys(_ERRORS, "tenuto.client.errors"),
}


def __getattr__(name: str) -> object:
    """Loads each part when it is first named: a command, which needs few of them, starts in a fraction of a second."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'tenuto.client' has no attribute {name!r}")
