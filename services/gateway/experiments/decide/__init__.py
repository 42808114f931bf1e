"""Decisions about experiments."""

from __future__ import annotations

from tenuto.kernel.decision_tables import joined
from tenuto.services.gateway.experiments.decide import deletions, experiments, limits, unmanaged, workspace_rules

DECISIONS = joined(deletions.DECISIONS, experiments.DECISIONS, limits.DECISIONS, workspace_rules.DECISIONS, unmanaged.DECISIONS)
