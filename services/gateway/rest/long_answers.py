"""Routes whose answers are long, and how many of them one user is sent at once."""

from __future__ import annotations

from tenuto.services.gateway.adapters.turns import Turns

ARTIFACT = "PUT /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}"
"""Its body is a file."""
HISTORIES = frozenset(
    {f"GET /api/v1/experiments/{{experiment_id}}/{what}" for what in ("checkpoints", "logs", "metrics", "pareto", "reproduction")}
    | {
        f"GET /api/v1/experiments/{{experiment_id}}/{what}"
        for what in ("files", "files/content", "importance", "metrics/curves", "metrics/table", "trials", "validations")
    }
    | {f"GET /api/v1/trials/{{trial_id}}/{what}" for what in ("logs", "metrics", "validations")}
    | {f"GET /api/v1/{what}" for what in ("checkpoints", "diff", "events", "events/search", "events/{position}/links", "sparks")}
    | {
        "POST /mlflow/api/2.0/mlflow/runs/search",
        "POST /mlflow/api/2.0/mlflow/logged-models/search",
        "GET /mlflow/api/2.0/mlflow/metrics/get-history",
        ARTIFACT,
    }
)
"""Their answers may be tens of megabytes, and hold a connection to the database for seconds."""
HISTORIES_PER_USER_MAX = 4
"""Answered at once, until they are sent; further ones wait. Fewer than the views have connections."""
DOWNLOADS = frozenset(
    {
        "GET /api/v1/checkpoints/{checkpoint_id}/download",
        "GET /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}",
    }
)
"""They read a store for minutes or hours."""
DOWNLOADS_PER_USER_MAX = 4
"""Sent at once; further ones wait. As many threads read for one user at most, of the 40 that all have."""


def turns() -> dict[str, Turns]:
    """By route, of the routes above. Those of one kind share their turns."""
    return {
        **dict.fromkeys(HISTORIES, Turns(of_one_user=HISTORIES_PER_USER_MAX)),
        **dict.fromkeys(DOWNLOADS, Turns(of_one_user=DOWNLOADS_PER_USER_MAX)),
    }
