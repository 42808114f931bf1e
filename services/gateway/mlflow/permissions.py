"""Rights that the routes of MLflow's protocol need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import CHANGES_EXPERIMENT, CREATES_EXPERIMENT, READS, PermissionRule

ROUTES: Mapping[str, PermissionRule] = {
    # MLflow's protocol, for unmanaged runs; a change is judged by the run or experiment that its body names.
    "GET /mlflow/api/2.0/mlflow/experiments/get": READS,
    "GET /mlflow/api/2.0/mlflow/experiments/get-by-name": READS,
    "POST /mlflow/api/2.0/mlflow/experiments/search": READS,
    "POST /mlflow/api/2.0/mlflow/experiments/create": CREATES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/update": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/delete": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/restore": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/set-experiment-tag": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/delete-experiment-tag": CHANGES_EXPERIMENT,
    "GET /mlflow/api/2.0/mlflow/runs/get": READS,
    "POST /mlflow/api/2.0/mlflow/runs/search": READS,
    "POST /mlflow/api/2.0/mlflow/logged-models/search": READS,
    "GET /mlflow/api/2.0/mlflow/logged-models/{model_id}": READS,
    "GET /mlflow/api/2.0/mlflow/logged-models/{model_id}/artifacts/directories": READS,
    "GET /mlflow/api/2.0/mlflow/metrics/get-history": READS,
    "GET /mlflow/api/2.0/mlflow/artifacts/list": READS,
    "GET /mlflow/api/2.0/mlflow-artifacts/artifacts": READS,
    "GET /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}": READS,
    "POST /mlflow/api/2.0/mlflow/runs/create": CREATES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/update": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/delete": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/restore": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-metric": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-parameter": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-batch": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-inputs": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-model": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/outputs": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/logged-models": CREATES_EXPERIMENT,
    "PATCH /mlflow/api/2.0/mlflow/logged-models/{model_id}": CHANGES_EXPERIMENT,
    "DELETE /mlflow/api/2.0/mlflow/logged-models/{model_id}": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/logged-models/{model_id}/params": CHANGES_EXPERIMENT,
    "PATCH /mlflow/api/2.0/mlflow/logged-models/{model_id}/tags": CHANGES_EXPERIMENT,
    "DELETE /mlflow/api/2.0/mlflow/logged-models/{model_id}/tags/{tag_key}": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/set-tag": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/delete-tag": CHANGES_EXPERIMENT,
    "PUT /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}": CHANGES_EXPERIMENT,
    "DELETE /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}": CHANGES_EXPERIMENT,
}
