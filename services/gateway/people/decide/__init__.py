"""Decisions about people: users, their tokens, sign-in, roles and workspaces."""

from __future__ import annotations

from tenuto.kernel.decision_tables import joined
from tenuto.services.gateway.people.decide import roles, secrets, signing_in, sso, users, workspaces

DECISIONS = joined(roles.DECISIONS, secrets.DECISIONS, signing_in.DECISIONS, sso.DECISIONS, users.DECISIONS, workspaces.DECISIONS)
