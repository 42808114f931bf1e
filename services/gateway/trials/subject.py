"""Parts that trials bring to the door."""

from __future__ import annotations

from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.trials import examples
from tenuto.services.gateway.trials.permissions import ROUTES
from tenuto.services.gateway.trials.routes import allocations, checkpoints, curves, stores, tables, trials

SUBJECT = Subject(
    "trials",
    ROUTES,
    (
        allocations.router,
        checkpoints.router,
        curves.router,
        stores.router,
        tables.router,
        trials.router,
    ),
    example_views=examples.VIEWS,
    histories=frozenset(
        {
            "GET /api/v1/checkpoints",
            "GET /api/v1/experiments/{experiment_id}/metrics/curves",
            "GET /api/v1/experiments/{experiment_id}/metrics/table",
            "GET /api/v1/trials/{trial_id}/logs",
            "GET /api/v1/trials/{trial_id}/metrics",
            "GET /api/v1/trials/{trial_id}/validations",
        }
    ),
    downloads=frozenset({"GET /api/v1/checkpoints/{checkpoint_id}/download"}),
)
