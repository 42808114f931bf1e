"""Deletes the files of checkpoints whose deletion is recorded. May be done again after a crash: what is gone is gone."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.manifest import manifest_key
from tenuto.kernel.storage.opening import is_manifest, open_location
from tenuto.schemas.config.storage import CheckpointStorage, SharedDirectoryStorage
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved
from tenuto.schemas.ids import experiment_of

logger = logging.getLogger(__name__)

PAGE_EVENTS = 500


class NotOurs(Exception):
    """The recorded location is not that of the checkpoint; nothing was deleted."""


async def delete_checkpoint(log: EventLog, event: Event) -> None:
    """Raises OSError (StoreError, for a store) when it cannot be deleted now, and NotOurs when it must not be."""
    data = event.data
    assert isinstance(data, CheckpointDeleted)
    saved = await _find_saved(log, event, data)
    if saved is None:
        logger.warning("checkpoint %s is to be deleted, but was never recorded", data.checkpoint_id)
        return
    if not is_manifest(saved.location):
        await asyncio.to_thread(_delete, directory_of(saved))
        return
    check_manifest_location(saved)
    storage = await storage_of(log, experiment_of(saved.trial_id))
    store, checkpoint_id = open_location(saved.location, storage)
    await asyncio.to_thread(checkpoints.delete, store, checkpoint_id)


async def storage_of(log: EventLog, experiment_id: int) -> CheckpointStorage:
    """Where the experiment's configuration puts its checkpoints."""
    events = await log.read(0, 1, types=[ExperimentSubmitted.TYPE], stream=f"{ExperimentSubmitted.STREAM}/{experiment_id}")
    for event in events:
        if isinstance(event.data, ExperimentSubmitted):
            return event.data.config.checkpoint_storage
    return SharedDirectoryStorage()


async def _find_saved(log: EventLog, event: Event, data: CheckpointDeleted) -> CheckpointSaved | None:
    """Where it is, is in the record of the same trial, before its deletion."""
    after = 0
    while True:
        events = await log.read(after, PAGE_EVENTS, upto=event.position, types=[CheckpointSaved.TYPE], stream=event.stream)
        for item in events:
            if isinstance(item.data, CheckpointSaved) and item.data.checkpoint_id == data.checkpoint_id:
                return item.data
        if len(events) < PAGE_EVENTS:
            return None
        after = events[-1].position


def check_manifest_location(saved: CheckpointSaved) -> None:
    """Raises NotOurs unless it is `.../<experiment>/<trial>/manifests/<checkpoint id>.json`: a location comes from a worker, and
    a wrong one must never make us delete something else."""
    path = unquote(urlsplit(saved.location).path)
    expected = f"/{experiment_of(saved.trial_id)}/{saved.trial_id}/{manifest_key(saved.checkpoint_id)}"
    if not path.endswith(expected) or ".." in path.split("/") or "/" in saved.checkpoint_id:
        raise NotOurs(f"{saved.location} is not the manifest of checkpoint {saved.checkpoint_id} of trial {saved.trial_id}")


def directory_of(saved: CheckpointSaved) -> Path:
    """The plain directory that the location names, as the first versions wrote them. Raises NotOurs unless it is
    `.../<experiment>/<trial>/<checkpoint id>`."""
    parts = urlsplit(saved.location)
    path = Path(unquote(parts.path))
    expected = (str(experiment_of(saved.trial_id)), saved.trial_id, saved.checkpoint_id)
    ours = parts.scheme == "file" and not parts.netloc and path.is_absolute() and ".." not in path.parts
    if not ours or path.parts[-3:] != expected:
        raise NotOurs(f"{saved.location} is not a directory of checkpoint {saved.checkpoint_id} of trial {saved.trial_id}")
    return path


def _delete(directory: Path) -> None:
    # Out of sight at once: nobody finds half a checkpoint under its name.
    hidden = directory.with_name(f".deleted-{directory.name}")
    if directory.exists():
        if hidden.exists():
            shutil.rmtree(hidden)
        directory.rename(hidden)
    if hidden.exists():
        shutil.rmtree(hidden)
