"""Rights that the routes of experiments need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import (
    CHANGES_EXPERIMENT,
    CHANGES_WORKSPACE,
    CREATES_EXPERIMENT,
    DERIVES,
    READS,
    READS_ONE,
    READS_WORKSPACE,
    PermissionRule,
)

ROUTES: Mapping[str, PermissionRule] = {
    "GET /api/v1/experiments": READS,
    "GET /api/v1/experiments/{experiment_id}": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/trials": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/metrics": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/validations": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/logs": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/checkpoints": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/pareto": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/rungs": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/lineage": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/moments": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/importance": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/files": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/files/content": READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/reproduction": READS_ONE,
    "GET /api/v1/sparks": READS,
    "GET /api/v1/trials/{trial_id}/record": READS_ONE,
    "GET /api/v1/diff": READS,
    "POST /api/v1/experiments": CREATES_EXPERIMENT,
    "POST /api/v1/preview": CREATES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/reproduce": DERIVES,
    "POST /api/v1/experiments/{experiment_id}/fork": DERIVES,
    "POST /api/v1/experiments/{experiment_id}/continue": DERIVES,
    # Changes of an experiment, and what reads all of its files.
    "PATCH /api/v1/experiments/{experiment_id}": CHANGES_EXPERIMENT,
    "PATCH /api/v1/experiments/{experiment_id}/description": CHANGES_EXPERIMENT,
    "PUT /api/v1/experiments/{experiment_id}/project": CHANGES_EXPERIMENT,
    "DELETE /api/v1/experiments/{experiment_id}": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/undelete": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/archive": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/unarchive": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/pause": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/resume": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/cancel": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/kill": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/operations": CHANGES_EXPERIMENT,
    "POST /api/v1/jobs/{experiment_id}/move": CHANGES_EXPERIMENT,
    "GET /api/v1/workspaces/{workspace}/rules": READS_WORKSPACE,
    "PUT /api/v1/workspaces/{workspace}/rules": CHANGES_WORKSPACE,
    "DELETE /api/v1/workspaces/{workspace}/rules": CHANGES_WORKSPACE,
}
