"""Deletes the files of checkpoints whose deletion is recorded. May be done again after a crash: what is gone is gone."""

from __future__ import annotations

import asyncio
import logging

from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.stores import NotOurs, Stores
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved
from tenuto.schemas.ids import experiment_of

logger = logging.getLogger(__name__)

PAGE_EVENTS = 500
REACH_EVENTS_FIRST = 1_000
REACH_GROWTH = 10
"""How far back a checkpoint is looked for: so many positions of the log, then ten times as many more, and so on."""


async def delete_checkpoint(log: EventLog, stores: Stores, event: Event) -> None:
    """Raises OSError (StoreError, for a store) when it cannot be deleted now; NotOurs, a StoreError too, when it must not be."""
    data = event.data
    assert isinstance(data, CheckpointDeleted)
    saved = await _find_saved(log, event, data)
    if saved is None:
        logger.warning("checkpoint %s is to be deleted, but was never recorded", data.checkpoint_id)
        return
    own = await store_of(log, experiment_of(saved.trial_id))
    store, checkpoint_id = stores.open_location(saved.location, own, saved.trial_id)
    if checkpoint_id != saved.checkpoint_id:
        raise NotOurs(f"{saved.location} is not the location of checkpoint {saved.checkpoint_id}.")
    await asyncio.to_thread(checkpoints.delete, store, checkpoint_id)


async def store_of(log: EventLog, experiment_id: int) -> str:
    """Name of the store that the experiment's configuration puts its checkpoints in."""
    events = await log.read(0, 1, types=[ExperimentSubmitted.TYPE], stream=f"{ExperimentSubmitted.STREAM}/{experiment_id}")
    for event in events:
        if isinstance(event.data, ExperimentSubmitted):
            return event.data.config.checkpoint_storage.store
    return SHARED_STORE


async def _find_saved(log: EventLog, event: Event, data: CheckpointDeleted) -> CheckpointSaved | None:
    """Where it is, is in the record of the same trial, before its deletion. Nearly always shortly before: so the newest part of
    the log is looked at first, and a trial that saves at every batch does not have all its checkpoints read at each deletion."""
    upto, reach = event.position, REACH_EVENTS_FIRST
    while upto > 0:
        after = begin = max(upto - reach, 0)
        while True:
            events = await log.read(after, PAGE_EVENTS, upto=upto, types=[CheckpointSaved.TYPE], stream=event.stream)
            for item in events:
                if isinstance(item.data, CheckpointSaved) and item.data.checkpoint_id == data.checkpoint_id:
                    return item.data
            if len(events) < PAGE_EVENTS:
                break
            after = events[-1].position
        upto, reach = begin, reach * REACH_GROWTH
    return None
