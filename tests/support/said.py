"""The sentence that users read about a decision."""

from __future__ import annotations

from pydantic_core import from_json

from tenuto.schemas.events import EventData
from tenuto.schemas.sentences import sentence

NEWEST = "test/1000000"
"""Actor with a rule version newer than any, so that its reasons are read by the newest rules."""


def said(data: object) -> str:
    assert isinstance(data, EventData)
    return sentence(data.TYPE, from_json(data.to_json()), NEWEST)
