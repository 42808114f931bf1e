"""Decisions about experiments."""

from __future__ import annotations

from tenuto.kernel.decisions import joined
from tenuto.services.gateway.experiments.decide import deletions, experiments, limits, rules, unmanaged

DECISIONS = joined(deletions.DECISIONS, experiments.DECISIONS, limits.DECISIONS, rules.DECISIONS, unmanaged.DECISIONS)
