"""Identifiers and how they are derived. Nothing here draws randomness: equal inputs give equal ids."""

from __future__ import annotations

from uuid import UUID, uuid5

NAMESPACE = UUID("6e0f6f4c-5f0e-5d0b-9a53-7465e75746f0")


def derived_event_id(consumer: str, cause: UUID, index: int) -> UUID:
    """The id of the `index`-th event that `consumer` decides because of `cause`: a re-run collides, never doubles."""
    return uuid5(cause, f"{consumer}/{index}")


def name_id(*parts: str) -> UUID:
    """An id derived from a natural key, for inputs that have no id of their own."""
    return uuid5(NAMESPACE, "/".join(parts))


def trial_id(experiment_id: int, trial_number: int) -> str:
    """`<experiment>-<trial number>`; trial numbers count from 1."""
    return f"{experiment_id}-{trial_number}"


def allocation_id(trial: str, allocation_number: int) -> str:
    """`<trial>-<n>`: the n-th allocation of that trial, counted from 1."""
    return f"{trial}-{allocation_number}"


def location_of(store: str, trial: str, checkpoint_id: str) -> str:
    """Location of a checkpoint in the record: the name of the operator's store, and the ids under which it is kept there."""
    return f"store://{store}/{experiment_of(trial)}/{trial}/manifests/{checkpoint_id}.json"


def experiment_of(trial_or_allocation: str) -> int:
    return int(trial_or_allocation.split("-", 1)[0])


def trial_of(allocation: str) -> str:
    return allocation.rsplit("-", 1)[0]
