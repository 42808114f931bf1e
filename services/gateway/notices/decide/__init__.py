"""Decisions about webhooks and their notices."""

from __future__ import annotations

from tenuto.kernel.decision_tables import joined
from tenuto.services.gateway.notices.decide import webhooks

DECISIONS = joined(webhooks.DECISIONS)
