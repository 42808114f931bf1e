"""Deleting a checkpoint's files: only its own directory, as often as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_memory import MemoryEventLog
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved
from tenuto.schemas.ids import name_id
from tenuto.services.tracker.effects import NotOurs, delete_checkpoint, directory_of


def saved(location: str, name: str = "c1") -> CheckpointSaved:
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


async def test_only_the_named_checkpoint_is_deleted_and_twice_is_harmless(tmp_path: Path) -> None:
    log = MemoryEventLog()
    for name in ("c1", "c2"):
        directory = tmp_path / "1" / "1-1" / name
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / "model").write_bytes(b"x")
        await record(log, saved(directory.as_uri(), name))
    event = await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="c1", reason="r"))
    for _ in range(2):
        await delete_checkpoint(log, event)
        assert [path.name for path in (tmp_path / "1" / "1-1").iterdir()] == ["c2"]


async def test_a_deletion_that_was_cut_off_is_completed(tmp_path: Path) -> None:
    log = MemoryEventLog()
    await record(log, saved((tmp_path / "1" / "1-1" / "c1").as_uri()))
    half = tmp_path / "1" / "1-1" / ".deleted-c1"
    half.mkdir(parents=True)
    (half / "model").write_bytes(b"x")
    await delete_checkpoint(log, await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="c1", reason="r")))
    assert not half.exists()


async def test_a_checkpoint_that_was_never_recorded_is_nothing_to_delete() -> None:
    log = MemoryEventLog()
    await delete_checkpoint(log, await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="c1", reason="r")))


@pytest.mark.parametrize(
    "location",
    [
        "file:///home",
        "file:///x/1/1-2/c1",
        "file:///x/2/1-1/c1",
        "file:///x/1/1-1",
        "file:///x/1/../1/1-1/c1",
        "file://host/x/1/1-1/c1",
        "s3://x/1/1-1/c1",
        "x/1/1-1/c1",
        "",
    ],
)
def test_any_other_place_is_left_alone(location: str) -> None:
    with pytest.raises(NotOurs):
        directory_of(saved(location))


def test_a_trailing_slash_and_escapes_are_understood() -> None:
    assert directory_of(saved("file:///a%20b/1/1-1/c1/")) == Path("/a b/1/1-1/c1")
