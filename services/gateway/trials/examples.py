"""Examples of answers in the OpenAPI document, by their class."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.http.examples import HASH, TIME_US, later
from tenuto.services.gateway.trials.bodies import Done
from tenuto.services.gateway.trials.views import (
    AllocationView,
    CheckpointDetail,
    CheckpointVerdict,
    CheckpointView,
    CurvesView,
    LogLineView,
    MetricPointView,
    ParetoView,
    StoreView,
    SweepView,
    TrialView,
    ValidationView,
)

_HYPERPARAMETERS = {"learning_rate": 0.0031}
_SIZE_BYTES = 180_224
_CHECKPOINT: dict[str, Any] = {
    "id": "3-7-1-469",
    "trial_id": "3-7",
    "experiment_id": 3,
    "allocation_id": "3-7-1",
    "batches": 469,
    "length": 1,
    "size_bytes": _SIZE_BYTES,
    "location": "store://shared/3/3-7/manifests/3-7-1-469.json",
    "metric": 0.97,
    "saved_us": later(60),
    "deleted_us": None,
    "delete_reason": None,
}
VIEWS: dict[type[Any], Any] = {
    AllocationView: {
        "id": "3-7-1",
        "trial_id": "3-7",
        "experiment_id": 3,
        "pool": "default",
        "state": "released",
        "slots": [{"agent_id": "node-1", "slot_ids": [0]}],
        "reason": "Trial 3-7 is next at priority 60 and needs 1 of 4 free slots; it gets slots of node-1 (1).",
        "outcome": "completed",
        "exit_code": 0,
        "error": None,
        "granted_us": TIME_US,
        "started_us": later(2),
        "exited_us": later(62),
        "released_us": later(62),
    },
    CheckpointView: _CHECKPOINT,
    CheckpointDetail: {
        **_CHECKPOINT,
        "files": [{"path": "model.safetensors", "size_bytes": _SIZE_BYTES, "sha256": HASH}],
    },
    CheckpointVerdict: {"id": "3-7-1-469", "ok": True, "problems": [], "files": 1, "size_bytes": _SIZE_BYTES},
    CurvesView: {
        "width": 10,
        "first": 0,
        "last": 469,
        "cursor": "120",
        "whole": True,
        "metrics": ["loss"],
        "curves": [{"trial_id": "3-7", "metric": "loss", "since": 0, "batches": [10, 20], "values": [2.3, 1.9], "time_us": None}],
    },
    Done: {"id": 3, "changed": True},
    LogLineView: {
        "line": 12,
        "trial_id": "3-7",
        "allocation_id": "3-7-1",
        "rank": 0,
        "stream": "stdout",
        "time_us": later(4),
        "text": "epoch 1 begins",
    },
    MetricPointView: {"trial_id": "3-7", "batches": 10, "time_us": later(4), "metrics": {"loss": 2.3}},
    ParetoView: {
        "goals": [{"metric": "accuracy", "smaller_is_better": False}, {"metric": "seconds", "smaller_is_better": True}],
        "compared": 12,
        "front": [
            {
                "trial_id": "3-7",
                "state": "completed",
                "length": 16,
                "values": {"accuracy": 0.98, "seconds": 41.0},
                "hyperparameters": _HYPERPARAMETERS,
            }
        ],
    },
    StoreView: {"name": "models", "type": "s3", "url": "s3://models/tenuto"},
    SweepView: {
        "dry_run": True,
        "orphans": [
            {
                "experiment_id": 3,
                "url": "store://shared/3/3-9",
                "size_bytes": _SIZE_BYTES,
                "reason": "its upload was cut off",
            }
        ],
        "size_bytes": _SIZE_BYTES,
        "problems": [],
    },
    TrialView: {
        "id": "3-7",
        "experiment_id": 3,
        "number": 7,
        "state": "running",
        "hyperparameters": _HYPERPARAMETERS,
        "seed": 4611686018427387904,
        "target_length": 4,
        "batches": 469,
        "length": 1,
        "latest_metric": 0.97,
        "best_metric": 0.97,
        "best_batches": 469,
        "allocation_id": "3-7-1",
        "allocations": 1,
        "failures": 0,
        "error": None,
        "reason": "Rank 1 of 4 at rung 0 (1 epoch), accuracy 0.97: in the top 1/4 (the best 1), so it trains on to 4 epochs.",
        "said_us": later(60),
        "silent_seconds": 1.5,
        "requested_us": TIME_US,
        "ended_us": None,
    },
    ValidationView: {
        "trial_id": "3-7",
        "batches": 469,
        "length": 1,
        "time_us": later(60),
        "metrics": {"accuracy": 0.97, "loss": 0.11},
        "metric": 0.97,
    },
}
