"""Limits of what an agent may say of itself. An agent in the wrong hands says what it likes, and its words become events, series
of metrics, rows of views and lines in a terminal. Events recorded before are read without these."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tenuto.schemas.events.agent import Offer
from tenuto.schemas.names import NAME_PATTERN
from tenuto.schemas.text import unprintable, unstorable

AGENT_SLOTS_MAX = 4_096
"""Most slots of one agent: cores of the largest machines. Heartbeats name them all, and the bus takes 1 MiB."""
SLOT_ID_MAX = 2**31 - 1
"""Largest number of a slot that the views can store."""
LABELS_MAX = 100
RUNTIMES_MAX = 10
WORD_CHARACTERS_MAX = 300
"""Most characters of a label or a name."""


def unacceptable(offer: Offer) -> str:
    """Reason why the launcher does not take this offer, as the rest of a sentence; empty if it does."""
    if not re.fullmatch(NAME_PATTERN, offer.pool):
        return "the pool's name must be of 1 to 63 letters, digits, - and _ (TENUTO_POOL)"
    if len(offer.slots) > AGENT_SLOTS_MAX:
        return f"an agent may have at most {AGENT_SLOTS_MAX} slots, and this one has {len(offer.slots)} (TENUTO_CPU_SLOTS)"
    ids = [slot.slot_id for slot in offer.slots]
    if len(set(ids)) < len(ids) or not all(0 <= number <= SLOT_ID_MAX for number in ids):
        return f"its slots must have numbers of their own, from 0 to {SLOT_ID_MAX}"
    devices = [slot.uuid for slot in offer.slots if slot.uuid]
    if len(set(devices)) < len(devices):
        return "it offers one GPU twice"
    if len(offer.labels) > LABELS_MAX or len(offer.runtimes) > RUNTIMES_MAX:
        return f"an agent may have at most {LABELS_MAX} labels (TENUTO_AGENT_LABELS) and {RUNTIMES_MAX} runtimes"
    if problem := _wrong(offer.labels):
        return f"a label {problem} (TENUTO_AGENT_LABELS)"
    if problem := _wrong((offer.host, offer.version, *offer.runtimes, *(slot.device for slot in offer.slots), *devices)):
        return f"the name of its host, version, runtime or device {problem}"
    return unstorable(offer.unlimited)


def _wrong(words: Iterable[str]) -> str:
    for word in words:
        if len(word) > WORD_CHARACTERS_MAX:
            return f"has more than {WORD_CHARACTERS_MAX} characters"
        if problem := unprintable(word):
            return problem
    return ""
