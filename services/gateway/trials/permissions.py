"""Rights that the routes of trials need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import CHANGES_EXPERIMENT, READS, READS_ONE, SEES, UPKEEP, PermissionRule

ROUTES: Mapping[str, PermissionRule] = {
    "GET /api/v1/allocations": READS,
    "GET /api/v1/experiments/{experiment_id}/metrics/curves": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/metrics/table": READS_ONE,
    "GET /api/v1/trials/{trial_id}": READS_ONE,
    "GET /api/v1/trials/{trial_id}/metrics": READS_ONE,
    "GET /api/v1/trials/{trial_id}/validations": READS_ONE,
    "GET /api/v1/trials/{trial_id}/logs": READS_ONE,
    "GET /api/v1/checkpoints": READS,
    "GET /api/v1/stores": SEES,
    "GET /api/v1/checkpoints/{checkpoint_id}": READS_ONE,
    "GET /api/v1/checkpoints/{checkpoint_id}/download": READS_ONE,
    "POST /api/v1/checkpoints/{checkpoint_id}/verify": CHANGES_EXPERIMENT,
    # The cluster's.
    "POST /api/v1/checkpoints/gc": UPKEEP,
}
