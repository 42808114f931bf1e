"""Deleting a checkpoint's files: only its own, as often as one likes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.kernel.eventlog import Append
from tenuto.kernel.storage.stores import NotOurs, Stores
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved
from tenuto.schemas.ids import name_id
from tenuto.services.tracker import effects
from tenuto.services.tracker.effects import DeletionEvents, delete_checkpoint
from tests.support.memory_log import MemoryEventLog

POLICY = Reason(rule="test")


def saved(location: str, name: str = "1-1-1-5") -> CheckpointSaved:
    return CheckpointSaved(
        trial_id="1-1",
        allocation_id="1-1-1",
        checkpoint_id=name,
        batches=1,
        length=1,
        files=(),
        size_bytes=0,
        location=location,
    )


async def record(log: MemoryEventLog, data: EventData) -> Event:
    event = Event(
        id=name_id(data.to_json().decode()),
        stream=data.stream(),
        type=data.TYPE,
        schema_version=1,
        time_us=0,
        payload=data.to_json(),
        actor="t",
    )
    return (await log.append(Append(events=[event]))).events[0]


async def test_a_checkpoint_that_was_never_recorded_is_nothing_to_delete(tmp_path: Path) -> None:
    log = MemoryEventLog()
    event = await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-5", reason=POLICY))
    await delete_checkpoint(log, Stores(tmp_path), DeletionEvents(), event)


@pytest.mark.parametrize(
    "location",
    [
        "file:///home",
        "file:///x/1/1-2/manifests/1-1-1-5.json",
        "file:///x/2/1-1/manifests/1-1-1-5.json",
        "file:///x/1/1-1/1-1-1-5",
        "store://shared/1/1-1/manifests/1-1-1-6.json",
        "store://shared/1/1-2/manifests/1-1-1-5.json",
        "store://shared/x/1/1-1/manifests/1-1-1-5.json",
        "store://../1/1-1/manifests/1-1-1-5.json",
        "store://shared/1/1-1/manifests/../../../x.json",
        "x/1/1-1/manifests/1-1-1-5.json",
        "",
    ],
)
async def test_any_other_place_is_left_alone(location: str, tmp_path: Path) -> None:
    log = MemoryEventLog()
    await record(log, saved(location))
    event = await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-5", reason=POLICY))
    with pytest.raises(NotOurs):
        await delete_checkpoint(log, Stores(tmp_path), DeletionEvents(), event)


async def test_a_deletion_reads_the_newest_checkpoints_and_not_all_of_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that saves at every batch: each deletion would read all that it ever saved. A far older one is found as well."""
    log, read = MemoryEventLog(), 0
    monkeypatch.setattr(effects, "REACH_EVENTS_FIRST", 10)
    for batches in range(300):
        where = f"store://shared/1/1-1/manifests/1-1-1-{batches}.json"
        await record(log, saved(where).model_copy(update={"checkpoint_id": f"1-1-1-{batches}"}))
    newest = await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-298", reason=POLICY))
    oldest = await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-0", reason=POLICY))
    real = log.read

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal read
        found = await real(*arguments, **options)
        read += len(found)
        return found

    monkeypatch.setattr(log, "read", counted)
    found = await effects._find_saved(log, newest, cast(CheckpointDeleted, newest.data))
    assert found is not None
    assert found.checkpoint_id == "1-1-1-298"
    assert read <= 10
    found = await effects._find_saved(log, oldest, cast(CheckpointDeleted, oldest.data))
    assert found is not None
    assert found.checkpoint_id == "1-1-1-0"


async def test_what_was_recorded_lately_is_deleted_without_a_look_at_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A location that was remembered is judged like one that was read."""
    log, remembered = MemoryEventLog(), DeletionEvents()
    events = []
    for name, location in (("1-1-1-5", "store://shared/1/1-1/manifests/1-1-1-5.json"), ("1-1-1-6", "file:///home")):
        remembered.note(None, [await record(log, saved(location, name))])
        events.append(await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id=name, reason=POLICY)))
    await delete_checkpoint(log, Stores(tmp_path), remembered, events[0])  # reads which store the experiment has

    async def unread(*_: Any, **__: Any) -> Any:
        raise AssertionError("the record was read")

    again = await record(log, saved("store://shared/1/1-1/manifests/1-1-1-7.json", "1-1-1-7"))
    remembered.note(None, [again])
    events.append(await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-7", reason=POLICY)))
    manifest = tmp_path / "1/1-1/manifests/1-1-1-7.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{")
    monkeypatch.setattr(log, "read", unread)
    await delete_checkpoint(log, Stores(tmp_path), remembered, events[2])
    assert not manifest.exists()
    with pytest.raises(NotOurs):
        await delete_checkpoint(log, Stores(tmp_path), remembered, events[1])


def test_so_many_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "REMEMBERED_MAX", 2)
    remembered = DeletionEvents()
    for number in range(4):
        data = saved("x", f"1-1-1-{number}")
        remembered.note(None, [Event(
            id=name_id(str(number)), stream="trial/1-1", type=data.TYPE, schema_version=1, time_us=0, payload=data.to_json(),
            actor="t",
        )])  # fmt: skip
    known = [remembered.location(CheckpointDeleted(trial_id="1-1", checkpoint_id=f"1-1-1-{n}", reason=POLICY)) for n in range(4)]
    assert known == [None, None, "x", "x"]
