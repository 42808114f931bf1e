"""Parts that MLflow's protocol brings to the door."""

from __future__ import annotations

from tenuto.services.gateway.http.plugin_doors import DoorPlugin
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.mlflow.door import make_door
from tenuto.services.gateway.mlflow.handling import links
from tenuto.services.gateway.mlflow.handling.errors import PREFIX, MlflowErrors
from tenuto.services.gateway.mlflow.permissions import ROUTES
from tenuto.services.gateway.mlflow.routes import artifacts, experiments, models, runs

SUBJECT = Subject(
    "mlflow",
    ROUTES,
    foreign_routers=(experiments.router, runs.router, models.router, artifacts.router),
    middleware=(MlflowErrors,),
    basic_prefixes=(PREFIX,),
    pages=dict.fromkeys(links.ADDRESSES, links.page),
    histories=frozenset(
        {
            "GET /mlflow/api/2.0/mlflow/metrics/get-history",
            "POST /mlflow/api/2.0/mlflow/logged-models/search",
            "POST /mlflow/api/2.0/mlflow/runs/search",
            "PUT /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}",
        }
    ),
    downloads=frozenset({"GET /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}"}),
    uploads={"PUT /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}": lambda settings: settings.artifact_bytes_max},
)

PLUGIN = DoorPlugin(SUBJECT, make_door)
