"""Numbers that several rules record, or that explain why a trial waits. Their sentences are in `schemas/sentences`."""

from __future__ import annotations

from typing import TypedDict

from tenuto.schemas.sentences.waiting import NAMES_SHOWN_MAX
from tenuto.services.scheduler.state import Experiment


class GangNumbers(TypedDict):
    """Fields of `schemas.sentences.waiting.Gang`."""

    slots_wanted: int
    locality: str
    device: str
    labels: tuple[str, ...]
    exclude: tuple[str, ...]


def gang(experiment: Experiment) -> GangNumbers:
    """Needs of its next trial, as shown to users who ask why it waits."""
    asked = experiment.constraints
    return {
        "slots_wanted": experiment.slots_per_trial,
        "locality": asked.locality if asked else "any",
        "device": asked.device if asked else "",
        "labels": asked.labels if asked else (),
        "exclude": asked.exclude[:NAMES_SHOWN_MAX] if asked else (),
    }


class OrderNumbers(TypedDict, total=False):
    """Fields of `schemas.sentences.grants.Granted` about the order of experiments."""

    priority: int
    place: float
    slots_share: int
    weight: float


class ResizedNumbers(TypedDict):
    """Fields of `schemas.sentences.released_slots.Shrinks` and `Grows`."""

    slots_from: int
    slots_soon: int | None
    slots_to: int
    slots_min: int
    slots_max: int
