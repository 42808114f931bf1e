"""The sweep: what was stored but never recorded goes, and nothing else, in a directory and in a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.kernel.eventlog import Append
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.manifest import Manifest
from tenuto.kernel.storage.store import Store
from tenuto.kernel.storage.stores import Stores
from tenuto.kernel.storage.sweep import Sweep, experiments, sweep
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved
from tenuto.schemas.ids import location_of, name_id
from tests.support.memory_log import MemoryEventLog
from tests.support.s3_server import STORE, S3Server

FAR_FUTURE_US = 2**62


class World:
    def __init__(self, stores: Stores, name: str, tmp_path: Path) -> None:
        self.stores, self.name = stores, name
        self.log, self.tmp_path, self.live = MemoryEventLog(), tmp_path, dict[str, str]()
        self.config = ExperimentConfig.model_validate(
            {
                "name": "n",
                "entrypoint": "m:T",
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
                "checkpoint_storage": {"store": name},
            }
        )

    def store(self, trial_id: str) -> Store:
        return self.stores.open_trial(self.name, trial_id)

    async def record(self, data: EventData) -> None:
        event = Event(
            id=name_id(data.to_json().decode()), stream=data.stream(), type=data.TYPE, schema_version=1, time_us=0,
            payload=data.to_json(), actor="t", correlation_id="1",
        )  # fmt: skip
        await self.log.append(Append(events=[event]))

    async def submit(self) -> None:
        await self.record(
            ExperimentSubmitted(experiment_id=1, config=self.config, seed=1, context_hash="", context_size_bytes=0, user="u")
        )

    def save(self, trial_id: str, checkpoint_id: str, files: dict[str, bytes], base: Manifest | None = None) -> Manifest:
        directory = self.tmp_path / f"staged-{checkpoint_id}"
        directory.mkdir()
        for name, data in files.items():
            (directory / name).write_bytes(data)
        return checkpoints.save(self.store(trial_id), Staged(checkpoint_id, directory, base))

    async def saved(self, trial_id: str, manifest: Manifest) -> None:
        await self.record(
            CheckpointSaved(
                trial_id=trial_id, allocation_id=f"{trial_id}-1", checkpoint_id=manifest.checkpoint_id, batches=1, length=1,
                files=manifest.recorded, size_bytes=manifest.size_bytes,
                location=location_of(self.name, trial_id, manifest.checkpoint_id),
            )
        )  # fmt: skip

    async def sweep(self, older_than_us: int = FAR_FUTURE_US, dry_run: bool = False) -> Sweep:
        used, _ = await experiments(self.log)
        return await sweep(self.log, self.stores, used, self.live.get, older_than_us, dry_run=dry_run)

    def stored(self) -> list[str]:
        return sorted(entry.key for entry in self.stores.open(self.name).entries(""))


@pytest.fixture(params=["directory", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "directory":
        return World(Stores(tmp_path / "store"), SHARED_STORE, tmp_path)
    server: S3Server = request.getfixturevalue("s3_server")
    return World(server.stores(tmp_path.name), STORE, tmp_path)


async def test_orphans_go_and_what_is_recorded_shared_young_or_live_stays(world: World) -> None:
    await world.submit()
    first = world.save("1-1", "1-1-1-10", {"same": b"s", "own": b"1"})
    second = world.save("1-1", "1-1-1-20", {"same": b"s", "own": b"2"}, first)
    for manifest in (first, second):
        await world.saved("1-1", manifest)
    # The first was deleted, but the deletion was cut off after the manifest: what the second shares must stay.
    await world.record(CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-10", reason=Reason(rule="test")))
    # Stored, and its worker died before the report; another worker died before the manifest.
    third = world.save("1-1", "1-1-2-30", {"same": b"s", "own": b"3"}, second)
    world.store("1-1").put_bytes("blobs/" + "0" * 64 + ".1-1-2-40", b"half")
    await_recorded = world.save("1-2", "1-2-1-10", {"a": b"1"})
    world.live["1-2"] = "1-2-1"

    assert (await world.sweep(older_than_us=1)).orphans == [], "nothing is so old"
    before = world.stored()
    planned = await world.sweep(dry_run=True)
    assert world.stored() == before
    done = await world.sweep()
    assert planned == done
    own_alone = 0 if world.store("1-1").packs_small_files else 1  # else it is in the pack that the second needs
    assert len(done.orphans) == 4 + own_alone, "two manifests, the third's blob, the half one"
    assert done.size_bytes > 0
    assert done.problems == []
    assert checkpoints.verify(world.store("1-1"), second) == []
    assert checkpoints.verify(world.store("1-2"), await_recorded) == []
    assert checkpoints.list_manifests(world.store("1-1")) == ["1-1-1-20"]
    assert (await world.sweep()).orphans == []
    assert checkpoints.verify(world.store("1-1"), third) != []

    world.live.clear()  # the allocation ended without a report: now it never comes
    assert len((await world.sweep()).orphans) == 2
    assert all(key.startswith("1/1-1/") for key in world.stored())


async def test_where_a_manifest_cannot_be_read_files_are_left_alone(world: World) -> None:
    await world.submit()
    first = world.save("1-1", "1-1-1-10", {"own": b"1"})
    await world.saved("1-1", first)
    store = world.store("1-1")
    store.put_bytes("manifests/1-1-1-10.json", b"damaged")
    store.put_bytes("blobs/" + "0" * 64 + ".1-1-0-1", b"perhaps used")
    result = await world.sweep()
    assert result.orphans == []
    assert "trial 1-1: its files are left alone" in result.problems[0]


async def test_a_store_that_is_away_is_told(tmp_path: Path) -> None:
    with S3Server.away(tmp_path / "store") as server:
        world = World(server.stores(), STORE, tmp_path)
        await world.submit()
        result = await world.sweep()
    assert result.orphans == []
    assert "experiment 1: s3://checkpoints/1" in result.problems[0]


async def test_files_of_others_in_a_shared_directory_are_not_touched(tmp_path: Path) -> None:
    world = World(Stores(tmp_path / "store"), SHARED_STORE, tmp_path)
    await world.submit()
    for name in ("1/notes.txt", "1/1-1/notes.txt", "1/1-1/mine/model.bin", "2/2-1/blobs/x"):
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    result = await world.sweep()
    assert result.orphans == []
    assert world.stored() == ["1/1-1/mine/model.bin", "1/1-1/notes.txt", "1/notes.txt", "2/2-1/blobs/x"]
