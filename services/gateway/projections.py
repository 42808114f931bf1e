"""Folds the log into the tables that users look at (`sql/`): the handlers of the subjects, joined. Each is a few statements keyed
by the event's own ids; an event about something that the tables do not have (its beginning was parked) changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

from tenuto.schemas.envelope import Event
from tenuto.services.gateway.cluster.projections import agents, allocations
from tenuto.services.gateway.experiments import projections as experiments
from tenuto.services.gateway.read_models.common import Connection, Handler
from tenuto.services.gateway.trials.projections import trials, unmanaged, validations

TABLES = (
    "experiments", "trials", "trial_validations", "trial_checkpoints", "allocations", "agents", "closed_slots", "user_names",
    "trial_hyperparameters", "foreign_events",
)  # fmt: skip
"""Tables that a rebuild empties first."""
HANDLERS: dict[str, Handler] = {
    **experiments.HANDLERS,
    **trials.HANDLERS,
    **allocations.HANDLERS,
    **agents.HANDLERS,
    **unmanaged.HANDLERS,
}
RUNS: dict[str, Callable[[Connection, Sequence[Event]], Awaitable[None]]] = {"ValidationReported": validations.validated}
"""Events that are folded together where they follow each other in the record."""
TYPES = frozenset((*HANDLERS, *RUNS))


async def apply(connection: Connection, events: Sequence[Event]) -> None:
    """Folds a batch, inside the transaction that also moves the projection's cursor: each event once, in order."""
    for kind, run in groupby(events, key=lambda event: event.type):
        if kind in RUNS:
            await RUNS[kind](connection, list(run))
        elif handler := HANDLERS.get(kind):
            for event in run:
                await handler(connection, event, event.data)
