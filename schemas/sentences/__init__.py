"""Sentences for users, made of recorded decisions at the time of reading.

Pure, and in the published language: the gateway, the command line and programs that follow the events may all import it, and none
of them may import a service. Importing this package registers all rules: `search`, `rungs` and `ends` are the searcher's,
`grants` and `released_slots` the scheduler's, `reports` the tracker's, `notices`, `rule_actions`, `deletions` and `limits` the
gateway's, `nodes` are the launcher's, and `waiting` is what the scheduler answers about its queue.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from tenuto.schemas.envelope import Event
from tenuto.schemas.sentences import (  # noqa: F401 - they register their rules
    deletions,
    ends,
    grants,
    limits,
    nodes,
    notices,
    released_slots,
    reports,
    rule_actions,
    rungs,
    search,
    waiting,
)
from tenuto.schemas.sentences.rules import FORMS, Data, Numbers, form_of

TOLD = frozenset(about for about, _ in FORMS if about != waiting.QUEUE)
"""Types of events that record a reason."""


def sentence(about: str, data: Data, actor: str) -> str:
    """Reason of an event as one sentence; empty if the event records none. `about`: the event's type. `actor`: the service
    that recorded it, with the version of its rules, as in the envelope. A rule unknown to this release is named with its
    numbers."""
    reason = data.get("reason") if about in TOLD else None
    if not isinstance(reason, dict):
        return ""
    name, numbers = str(reason.get("rule", "")), reason.get("numbers") or {}
    return said(about, name, numbers, data, actor)


def said(about: str, name: str, numbers: dict[str, Any], data: Data, actor: str) -> str:
    _, _, version = actor.rpartition("/")
    kind = form_of(about, name, int(version) if version.isdecimal() else 0)
    try:
        if kind is not None:
            return kind(**numbers).sentence(data)
    except Exception:  # numbers of another release, or of a log that was written by something else
        pass
    shown = ", ".join(f"{key} {value}" for key, value in numbers.items()) if isinstance(numbers, dict) else str(numbers)
    return f"Decided by rule {name or '(none)'} of {actor}, which this release cannot put into words: {shown or 'no numbers'}."


def sentence_of(event: Event) -> str:
    return sentence(event.type, from_json(event.payload), event.actor) if event.type in TOLD else ""


__all__ = ["TOLD", "Data", "Numbers", "said", "sentence", "sentence_of"]
