"""Answers in the JSON form of MLflow's messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from tenuto.services.gateway.mlflow.queries.models import ModelDetails, ModelRow
from tenuto.services.gateway.mlflow.queries.runs import ExperimentRow, RunDetails, RunRow

Json = dict[str, Any]
MODEL_STATES = {
    "LOGGED_MODEL_PENDING": "PENDING",
    "LOGGED_MODEL_READY": "READY",
    "LOGGED_MODEL_UPLOAD_FAILED": "FAILED",
}
"""Status of a model in requests and answers -> the same in filters."""
_STATES_OF_MODELS = {text: name for name, text in MODEL_STATES.items()}


def answer(body: Mapping[str, Any] | None = None) -> Response:
    return Response(json.dumps(body or {}, separators=(",", ":")), media_type="application/json")


def pairs(items: Iterable[tuple[str, str]]) -> list[Json]:
    return [{"key": name, "value": text} for name, text in items]


def metric(name: str, value: float, step: int, time_ms: int) -> Json:
    return {"key": name, "value": _number(value), "timestamp": time_ms, "step": step}


def run_info(run: RunRow) -> Json:
    info: Json = {
        "run_id": run.trial_id,
        "run_uuid": run.trial_id,
        "run_name": run.name,
        "experiment_id": str(run.experiment_id),
        "user_id": run.user,
        "status": run.status,
        "start_time": run.requested_us // 1000,
        "artifact_uri": run.artifact_uri,
        "lifecycle_stage": "deleted" if run.deleted else "active",
    }
    return info if run.ended_us is None else {**info, "end_time": run.ended_us // 1000}


def run(found: RunRow, details: RunDetails) -> Json:
    data = {
        "metrics": [metric(*point) for point in details.metrics],
        "params": pairs(details.parameters),
        "tags": pairs(details.tags),
    }
    return {
        "info": run_info(found),
        "data": data,
        "inputs": {
            "dataset_inputs": [json.loads(text) for text in details.inputs],
            "model_inputs": [{"model_id": model_id} for model_id in details.models_read],
        },
        "outputs": {"model_outputs": [{"model_id": model_id, "step": step} for model_id, step in details.models_made]},
    }


def model(found: ModelRow, details: ModelDetails) -> Json:
    info: Json = {
        "model_id": found.model_id,
        "experiment_id": str(found.experiment_id),
        "name": found.name or found.model_id,
        "creation_timestamp_ms": found.created_us // 1000,
        "last_updated_timestamp_ms": found.updated_us // 1000,
        "artifact_uri": found.artifact_uri,
        "status": _STATES_OF_MODELS[found.status],
        "model_type": found.model_type,
        "source_run_id": found.source_run_id,
        "tags": pairs(details.tags),
    }
    metrics = [
        {
            **metric(item.name, item.value, item.step, item.time_ms),
            "model_id": found.model_id,
            "run_id": item.run_id,
            **({"dataset_name": item.dataset_name, "dataset_digest": item.dataset_digest} if item.dataset_name else {}),
        }
        for item in details.metrics
    ]
    return {"info": info, "data": {"params": pairs(details.parameters), "metrics": metrics}}


def experiment(found: ExperimentRow, tags: Iterable[tuple[str, str]]) -> Json:
    shown = list(tags)
    if found.method != "unmanaged":
        shown += [("tenuto.searcher", found.method), ("tenuto.state", found.state)]
    return {
        "experiment_id": str(found.experiment_id),
        "name": found.name,
        "artifact_location": f"mlflow-artifacts:/{found.experiment_id}",
        "lifecycle_stage": "deleted" if found.archived else "active",
        "creation_time": found.submitted_us // 1000,
        "last_update_time": (found.ended_us or found.submitted_us) // 1000,
        "tags": pairs(shown),
    }


def _number(value: float) -> float | str:
    """JSON has no NaN: as protobuf writes it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
