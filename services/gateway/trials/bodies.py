"""Immediate answers to changes that workers of trials carry out."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.services.gateway.trials.views import WorkersView


class Done(Model):
    """A request was recorded, or there was nothing to change."""

    id: int
    changed: bool
    waits_for: tuple[WorkersView, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Workers that still run, the longest silent first, a hundred at most. Absent: nothing is waited for."""
    killed_at_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Time at which agents kill workers that have not left; absent without such a limit."""
