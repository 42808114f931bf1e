"""Bodies of requests about the log."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.anchors import ANCHORS_SENT_MAX, Anchor
from tenuto.schemas.base import Model


class VerifyBody(Model):
    anchors: tuple[Anchor, ...] = Field(default=(), max_length=ANCHORS_SENT_MAX)
    """Anchors of the log's end that were kept elsewhere, to be compared as well."""
