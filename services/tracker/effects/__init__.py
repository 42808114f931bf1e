"""Deletes the files of checkpoints whose deletion is recorded. May be done again after a crash: what is gone is gone."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence

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
"""Growth of the searched part of the log per step: a checkpoint is searched backwards in parts, each ten times the last one."""


REMEMBERED_MAX = 20_000
"""Most checkpoints, and most experiments, that are remembered: some megabytes."""


class DeletionEvents:
    """Recent events that deletions need, so that they need not be read from the log: a trial that saves at every batch has as
    many deletions, and reading for each would cost ten times as much as recording did."""

    def __init__(self) -> None:
        self._locations: OrderedDict[tuple[str, str], str] = OrderedDict()
        """Locations by trial and checkpoint."""
        self._stores: OrderedDict[int, str] = OrderedDict()
        """Name of each experiment's store: its configuration never changes."""

    def note(self, _: object, folded: Sequence[Event]) -> None:
        """Remembers committed events; the service loop calls it."""
        for event in folded:
            if event.type == CheckpointSaved.TYPE and isinstance(saved := event.data, CheckpointSaved):
                self._locations[saved.trial_id, saved.checkpoint_id] = saved.location
        while len(self._locations) > REMEMBERED_MAX:
            self._locations.popitem(last=False)

    def note_store(self, experiment_id: int, name: str) -> None:
        self._stores[experiment_id] = name
        if len(self._stores) > REMEMBERED_MAX:
            self._stores.popitem(last=False)

    def location(self, deleted: CheckpointDeleted) -> str | None:
        """None: not known."""
        return self._locations.get((deleted.trial_id, deleted.checkpoint_id))

    def store(self, experiment_id: int) -> str | None:
        return self._stores.get(experiment_id)

    def forget(self, deleted: CheckpointDeleted) -> None:
        self._locations.pop((deleted.trial_id, deleted.checkpoint_id), None)


async def delete_checkpoint(log: EventLog, stores: Stores, remembered: DeletionEvents, event: Event) -> None:
    """Raises OSError (StoreError, for a store) when it cannot be deleted now; NotOurs, a StoreError too, when it must not be."""
    data = event.data
    assert isinstance(data, CheckpointDeleted)
    location = remembered.location(data)
    if location is None:
        saved = await _find_saved(log, event, data)
        if saved is None:
            logger.warning("checkpoint %s is to be deleted, but was never recorded", data.checkpoint_id)
            return
        location = saved.location
    own = await _own_store(log, remembered, experiment_of(data.trial_id))
    store, checkpoint_id = stores.open_location(location, own, data.trial_id)
    if checkpoint_id != data.checkpoint_id:
        raise NotOurs(f"{location} is not the location of checkpoint {data.checkpoint_id}.")
    await asyncio.to_thread(checkpoints.delete, store, checkpoint_id)
    remembered.forget(data)


async def _own_store(log: EventLog, remembered: DeletionEvents, experiment_id: int) -> str:
    name = remembered.store(experiment_id)
    if name is None:
        name = await store_of(log, experiment_id)
        remembered.note_store(experiment_id, name)
    return name


async def store_of(log: EventLog, experiment_id: int) -> str:
    """Name of the store that the experiment's configuration puts its checkpoints in."""
    events = await log.read(0, 1, types=[ExperimentSubmitted.TYPE], stream=f"{ExperimentSubmitted.STREAM}/{experiment_id}")
    for event in events:
        if isinstance(event.data, ExperimentSubmitted):
            return event.data.config.checkpoint_storage.store
    return SHARED_STORE


async def _find_saved(log: EventLog, event: Event, data: CheckpointDeleted) -> CheckpointSaved | None:
    """The event that recorded the checkpoint, in the log of the same trial before its deletion. Nearly always it is shortly
    before, so the newest part is read first: a trial that saves at every batch would else have all its checkpoints read at
    each deletion."""
    upto, reach, name = event.position, REACH_EVENTS_FIRST, data.checkpoint_id.encode()  # decoding all would cost far more
    while upto > 0:
        after = begin = max(upto - reach, 0)
        while True:
            events = await log.read(after, PAGE_EVENTS, upto=upto, types=[CheckpointSaved.TYPE], stream=event.stream)
            for item in events:
                saved = item.data if name in item.payload else None
                if isinstance(saved, CheckpointSaved) and saved.checkpoint_id == data.checkpoint_id:
                    return saved
            if not events.more:
                break
            after = events[-1].position
        upto, reach = begin, reach * REACH_GROWTH
    return None
