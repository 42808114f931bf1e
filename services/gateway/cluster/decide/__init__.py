"""Decisions about the cluster: pools, shares, slots, nodes, and machines that join."""

from __future__ import annotations

from tenuto.kernel.decision_tables import joined
from tenuto.services.gateway.cluster.decide import joining, nodes, slots

DECISIONS = joined(joining.DECISIONS, nodes.DECISIONS, slots.DECISIONS)
