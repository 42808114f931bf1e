"""`determined.core`: the Core API."""

from __future__ import annotations

import enum

from tenuto.workers.determined.core.checkpoint import CheckpointContext, DownloadMode
from tenuto.workers.determined.core.context import Context, PreemptContext, ProfilerContext, init
from tenuto.workers.determined.core.searching import SearcherContext, SearcherMode, SearcherOperation, Unit
from tenuto.workers.determined.core.train import EarlyExitReason, TrainContext
from tenuto.workers.determined.distributed import DistributedContext


class PreemptMode(enum.Enum):
    """Determined's choice of ranks that ask for preemption. Tenuto tells every rank, whatever is given."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class TensorboardMode(enum.Enum):
    """Metrics are recorded by the cluster, whatever is given."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "EarlyExitReason",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "init",
]
