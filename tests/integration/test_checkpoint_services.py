"""Tracker and gateway on checkpoints in a real S3 server and in a directory: deletion, download, verification."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tenuto.kernel.eventlog import Append
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.manifest import Manifest
from tenuto.kernel.storage.store import Store, StoreError
from tenuto.kernel.storage.stores import NotOurs, Stores
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved
from tenuto.schemas.ids import location_of, name_id
from tenuto.services.gateway.trials.adapters.downloads import (
    DownloadRefused,
    open_checkpoint,
    tar_size_bytes,
    tar_stream,
    verify_checkpoint,
)
from tenuto.services.tracker.effects import DeletionEvents, delete_checkpoint
from tests.support.memory_log import MemoryEventLog
from tests.support.s3_server import STORE, S3Server


class Named(NamedTuple):
    name: str
    stores: Stores


@pytest.fixture(params=["directory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Named:
    if request.param == "directory":
        return Named(SHARED_STORE, Stores(tmp_path / "store"))
    server: S3Server = request.getfixturevalue("s3_server")
    return Named(STORE, server.stores(tmp_path.name))


def save(store: Store, tmp_path: Path, checkpoint_id: str, files: dict[str, bytes], base: Manifest | None = None) -> Manifest:
    directory = tmp_path / f"staged-{checkpoint_id}"
    directory.mkdir()
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return checkpoints.save(store, Staged(checkpoint_id, directory, base))


async def record(log: MemoryEventLog, data: EventData) -> Event:
    event = Event(
        id=name_id(data.to_json().decode()), stream=data.stream(), type=data.TYPE, schema_version=1, time_us=0,
        payload=data.to_json(), actor="t",
    )  # fmt: skip
    return (await log.append(Append(events=[event]))).events[0]


def submitted(storage: Named) -> ExperimentSubmitted:
    config = ExperimentConfig.model_validate(
        {
            "name": "n",
            "entrypoint": "m:T",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            "checkpoint_storage": {"store": storage.name},
        }
    )
    return ExperimentSubmitted(experiment_id=1, config=config, context_hash="ab" * 32, context_size_bytes=1, seed=1, user="u")


def saved(location: str, checkpoint_id: str, manifest: Manifest) -> CheckpointSaved:
    return CheckpointSaved(
        trial_id="1-1", allocation_id="1-1-1", checkpoint_id=checkpoint_id, batches=1, length=1, files=manifest.recorded,
        size_bytes=manifest.size_bytes, location=location,
    )  # fmt: skip


async def test_a_recorded_deletion_frees_what_no_other_checkpoint_uses(storage: Named, tmp_path: Path) -> None:
    log = MemoryEventLog()
    await record(log, submitted(storage))
    store = storage.stores.open_trial(storage.name, "1-1")
    first = save(store, tmp_path, "1-1-1-1", {"same": b"s", "own": b"1"})
    second = save(store, tmp_path, "1-1-1-2", {"same": b"s", "own": b"2"}, first)
    for manifest in (first, second):
        await record(log, saved(location_of(storage.name, "1-1", manifest.checkpoint_id), manifest.checkpoint_id, manifest))
    event = await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-1", reason=Reason(rule="test")))
    for _ in range(2):
        await delete_checkpoint(log, storage.stores, DeletionEvents(), event)
        assert checkpoints.list_manifests(store) == ["1-1-1-2"]
        assert checkpoints.verify(store, second) == []
        assert len(list(store.entries("blobs"))) == 2


async def test_a_location_of_another_trial_is_left_alone(storage: Named, tmp_path: Path) -> None:
    log = MemoryEventLog()
    await record(log, submitted(storage))
    other = storage.stores.open_trial(storage.name, "1-2")
    manifest = save(other, tmp_path, "1-1-1-1", {"a": b"1"})
    await record(log, saved(location_of(storage.name, "1-2", "1-1-1-1"), "1-1-1-1", manifest))
    event = await record(log, CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-1", reason=Reason(rule="test")))
    with pytest.raises(NotOurs):
        await delete_checkpoint(log, storage.stores, DeletionEvents(), event)
    assert checkpoints.verify(other, manifest) == []


def test_a_download_is_the_recorded_files_and_damage_cuts_it(storage: Named, tmp_path: Path) -> None:
    store = storage.stores.open_trial(storage.name, "1-1")
    files = {"a": b"alpha", "empty": b"", "weights": b"w" * 5_000_000}
    manifest = save(store, tmp_path, "1-1-1-1", files)
    opened = (store, "1-1-1-1")
    data = b"".join(tar_stream(open_checkpoint(opened, manifest.recorded), manifest.recorded))
    assert len(data) == tar_size_bytes(manifest.recorded)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        unpacked = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    assert unpacked == files
    assert verify_checkpoint(opened, manifest.recorded) == []

    blob = next(file.blob for file in manifest.files if file.path == "weights")
    store.put_bytes(blob, b"W" * 5_000_000)
    assert verify_checkpoint(opened, manifest.recorded) == ["weights does not have the SHA-256 that was saved"]
    read = open_checkpoint(opened, manifest.recorded)
    with pytest.raises(OSError, match="weights does not have the SHA-256"):
        list(tar_stream(read, manifest.recorded))
    with pytest.raises(DownloadRefused, match="differs from the record in a"):
        open_checkpoint(opened, manifest.recorded[1:])
    assert verify_checkpoint(opened, manifest.recorded[1:]) == ["its manifest differs from the record in a"]


def test_a_store_that_is_away_is_not_damage(tmp_path: Path) -> None:
    with S3Server.away(tmp_path) as server:
        store = server.stores().open_trial(STORE, "1-1")
        with pytest.raises(StoreError, match=r"s3://checkpoints/1/1-1/manifests/c\.json"):
            verify_checkpoint((store, "c"), [])
