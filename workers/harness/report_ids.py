"""Ids that every report of a worker has."""

from __future__ import annotations

from typing import TypedDict

from tenuto.schemas.assignments import Assignment


class Ids(TypedDict):
    """Fields that every report of a worker has."""

    trial_id: str
    allocation_id: str


def ids_of(assignment: Assignment) -> Ids:
    return {"trial_id": assignment.trial_id, "allocation_id": assignment.allocation_id}
