"""Answers that say only that something was recorded."""

from __future__ import annotations

from tenuto.schemas.base import Model


class RightsChanged(Model):
    changed: bool
    """False: it was so already, and nothing is recorded."""


class Recorded(Model):
    position: int
    """Position of the event in the log."""
