"""Routes, permissions and examples of experiments at the door."""

from __future__ import annotations

from tenuto.services.gateway.experiments import examples
from tenuto.services.gateway.experiments.permissions import ROUTES
from tenuto.services.gateway.experiments.routes import (
    derived,
    descriptions,
    experiments,
    moving,
    operations,
    pareto,
    pictures,
    preview,
    records,
    search_history,
    workspaces,
)
from tenuto.services.gateway.http.subject import Subject

UPLOAD_OVERHEAD_BYTES = 4 << 20
"""Size allowed for the other parts of an upload: configuration, origin, boundaries."""
SUBJECT = Subject(
    "experiments",
    ROUTES,
    (
        derived.router,
        descriptions.router,
        experiments.router,
        moving.router,
        operations.router,
        pareto.router,
        pictures.router,
        preview.router,
        records.router,
        search_history.router,
        workspaces.router,
    ),
    example_bodies=examples.BODIES,
    example_answers=examples.ANSWERS,
    example_views=examples.VIEWS,
    histories=frozenset(
        {
            "GET /api/v1/diff",
            "GET /api/v1/experiments/{experiment_id}/checkpoints",
            "GET /api/v1/experiments/{experiment_id}/files",
            "GET /api/v1/experiments/{experiment_id}/files/content",
            "GET /api/v1/experiments/{experiment_id}/importance",
            "GET /api/v1/experiments/{experiment_id}/lineage",
            "GET /api/v1/experiments/{experiment_id}/logs",
            "GET /api/v1/experiments/{experiment_id}/metrics",
            "GET /api/v1/experiments/{experiment_id}/moments",
            "GET /api/v1/experiments/{experiment_id}/pareto",
            "GET /api/v1/experiments/{experiment_id}/reproduction",
            "GET /api/v1/experiments/{experiment_id}/rungs",
            "GET /api/v1/experiments/{experiment_id}/trials",
            "GET /api/v1/experiments/{experiment_id}/validations",
            "GET /api/v1/sparks",
        }
    ),
    uploads={"POST /api/v1/experiments": lambda settings: settings.context_bytes_max + UPLOAD_OVERHEAD_BYTES},
)
