"""Deletes the files of checkpoints whose deletion is recorded. May be done again after a crash: what is gone is gone."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tenuto.kernel.eventlog import EventLog
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved
from tenuto.schemas.ids import experiment_of

logger = logging.getLogger(__name__)

PAGE_EVENTS = 500


class NotOurs(Exception):
    """The recorded location is not a checkpoint's directory; nothing was deleted."""


async def delete_checkpoint(log: EventLog, event: Event) -> None:
    """Raises OSError when the directory cannot be deleted now, and NotOurs when it must not be."""
    data = event.data
    assert isinstance(data, CheckpointDeleted)
    saved = await _find_saved(log, event, data)
    if saved is None:
        logger.warning("checkpoint %s is to be deleted, but was never recorded", data.checkpoint_id)
        return
    await asyncio.to_thread(_delete, directory_of(saved))


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


def directory_of(saved: CheckpointSaved) -> Path:
    """The directory that the location names. Raises NotOurs unless it is `.../<experiment>/<trial>/<checkpoint id>`: a location
    comes from a worker, and a wrong one must never make us delete something else."""
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
