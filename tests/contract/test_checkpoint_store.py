"""What every store must do, on each of them: a directory, S3 (a real server, through minio and through obstore), a cloud's
in-memory back end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged, Staged
from tenuto.kernel.storage.cloud import CloudStore
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.opening import is_manifest, location_of, open_location, open_trial
from tenuto.kernel.storage.s3 import S3Store
from tenuto.kernel.storage.store import PART_BYTES, NotStored, Store, StoreError, read_bytes
from tenuto.schemas.config.storage import S3Storage, SharedDirectoryStorage
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server

_numbers = count(1)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    directory = Path(tempfile.mkdtemp(prefix="tenuto-s3-"))
    server = S3Server(directory)
    try:
        server.start()
        server.make_bucket("contract")
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def s3_store(server: S3Server, prefix: str) -> S3Store:
    return S3Store(
        "contract", prefix, endpoint=f"127.0.0.1:{server.port}", secure=False, region=None,
        access_key=ACCESS_KEY, secret_key=SECRET_KEY,
    )  # fmt: skip


@pytest.fixture(params=["directory", "s3", "cloud-memory", "cloud-s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    prefix = f"a b/{next(_numbers)}"
    if request.param == "directory":
        return DirectoryStore(tmp_path / "store" / prefix)
    if request.param == "cloud-memory":
        from obstore.store import MemoryStore

        return CloudStore(MemoryStore(), "gs://bucket/prefix")
    server: S3Server = request.getfixturevalue("s3_server")
    if request.param == "s3":
        return s3_store(server, prefix)
    from obstore.store import S3Store as ObstoreS3

    return CloudStore(
        ObstoreS3(
            "contract", prefix=f"cloud-{next(_numbers)}", endpoint=server.endpoint, region="us-east-1",
            access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY, client_options={"allow_http": True},
        ),
        "s3://contract",
    )  # fmt: skip


def fill(directory: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory


def keys(store: Store, prefix: str = "") -> list[str]:
    return sorted(entry.key for entry in store.entries(prefix))


def test_what_is_put_can_be_read_listed_and_deleted(store: Store, tmp_path: Path) -> None:
    assert keys(store) == []
    store.put_bytes("blobs/x", b"one")
    store.put_bytes("blobs/empty", b"")
    store.put_file("manifests/ü =&.json", fill(tmp_path, {"f": b"two"}) / "f")
    assert keys(store) == ["blobs/empty", "blobs/x", "manifests/ü =&.json"]
    assert keys(store, "blobs") == ["blobs/empty", "blobs/x"]
    assert keys(store, "blob") == [], "a prefix is whole path parts"
    assert read_bytes(store, "manifests/ü =&.json", 10) == b"two"
    assert read_bytes(store, "blobs/empty", 10) == b""
    found = store.stat("blobs/x")
    assert found is not None
    assert (found.key, found.size_bytes) == ("blobs/x", 3)
    assert found.modified_us > 1_700_000_000_000_000
    store.put_bytes("blobs/x", b"other")
    assert read_bytes(store, "blobs/x", 10) == b"other"
    with pytest.raises(StoreError, match="larger than 4"):
        read_bytes(store, "blobs/x", 4)
    store.delete(["blobs/x", "blobs/never-there"])
    assert store.stat("blobs/x") is None
    assert keys(store, "blobs") == ["blobs/empty"]
    store.delete([])


def test_what_is_not_there_is_named(store: Store) -> None:
    assert store.stat("blobs/none") is None
    with pytest.raises(NotStored, match="blobs/none"):
        list(store.stream("blobs/none"))


def test_a_file_of_several_parts_comes_back_equal(store: Store, tmp_path: Path) -> None:
    data = os.urandom(PART_BYTES + 12_345)
    store.put_file("blobs/big", fill(tmp_path, {"big": data}) / "big")
    assert b"".join(store.stream("blobs/big")) == data


def saved(store: Store, tmp_path: Path, checkpoint_id: str, files: dict[str, bytes], base: object = None) -> checkpoints.Manifest:
    directory = Path(tempfile.mkdtemp(dir=tmp_path))
    return checkpoints.save(store, Staged(checkpoint_id, fill(directory, files), base))  # type: ignore[arg-type]


def test_a_checkpoint_comes_back_verified_and_an_unchanged_file_is_stored_once(store: Store, tmp_path: Path) -> None:
    first = saved(store, tmp_path, "1-1-1-10", {"same": b"s" * 1000, "deep/er/changes": b"1", "twin": b"1"})
    second = saved(store, tmp_path, "1-1-1-20", {"same": b"s" * 1000, "deep/er/changes": b"2"}, first)
    assert len(keys(store, "blobs")) == 3, "same, 1 (once for two files of one checkpoint) and 2"
    assert checkpoints.list_manifests(store) == ["1-1-1-10", "1-1-1-20"]
    for manifest, expected in ((first, b"1"), (second, b"2")):
        read = checkpoints.read_manifest(store, manifest.checkpoint_id)
        assert read == manifest
        checkpoints.check_record(read, manifest.recorded)
        target = tmp_path / "out" / manifest.checkpoint_id
        checkpoints.load(store, read, target)
        assert (target / "same").read_bytes() == b"s" * 1000
        assert (target / "deep/er/changes").read_bytes() == expected
        assert checkpoints.verify(store, read) == []


def test_deleting_one_keeps_what_others_share_and_may_be_done_twice(store: Store, tmp_path: Path) -> None:
    first = saved(store, tmp_path, "c1", {"same": b"same", "own": b"1"})
    second = saved(store, tmp_path, "c2", {"same": b"same", "own": b"2"}, first)
    saved(store, tmp_path, "c3", {"same": b"new", "own": b"3"}, second)
    for _ in range(2):
        checkpoints.delete(store, "c1")
        assert checkpoints.list_manifests(store) == ["c2", "c3"]
        assert checkpoints.verify(store, second) == []
    checkpoints.delete(store, "c2")
    assert len(keys(store)) == 3
    checkpoints.delete(store, "c3")
    assert keys(store) == []


@pytest.mark.parametrize("how", ["changed", "shorter", "gone"])
def test_damage_is_found_and_named(store: Store, tmp_path: Path, how: str) -> None:
    manifest = saved(store, tmp_path, "c1", {"ok": b"fine", "model": b"weights" * 100})
    blob = next(file.blob for file in manifest.files if file.path == "model")
    if how == "gone":
        store.delete([blob])
    else:
        store.put_bytes(blob, b"Weights" * 100 if how == "changed" else b"weights")
    [problem] = checkpoints.verify(store, manifest)
    assert problem.startswith("model ")
    with pytest.raises(Damaged, match=r"^model "):
        checkpoints.load(store, manifest, tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format":1,"checkpoint_id":"other","files":[]}', None])
def test_a_damaged_manifest_is_named(store: Store, tmp_path: Path, content: bytes | None) -> None:
    saved(store, tmp_path, "c1", {"a": b"1"})
    if content is None:
        store.delete(["manifests/c1.json"])
    else:
        store.put_bytes("manifests/c1.json", content)
    with pytest.raises(Damaged, match="its manifest"):
        checkpoints.read_manifest(store, "c1")


def test_a_manifest_that_differs_from_the_record_is_not_believed(store: Store, tmp_path: Path) -> None:
    manifest = saved(store, tmp_path, "c1", {"a": b"1"})
    other = saved(store, tmp_path, "c2", {"a": b"2"})
    with pytest.raises(Damaged, match="differs from the record in a"):
        checkpoints.check_record(manifest, other.recorded)


def test_many_small_files(store: Store, tmp_path: Path) -> None:
    manifest = saved(store, tmp_path, "c1", {f"d{i % 7}/{i}": b"%d" % i for i in range(200)})
    assert len(keys(store, "blobs")) == 200
    checkpoints.load(store, manifest, tmp_path / "out")
    assert all((tmp_path / "out" / f"d{i % 7}/{i}").read_bytes() == b"%d" % i for i in range(200))


def test_locations_lead_back(tmp_path: Path, s3_server: S3Server) -> None:
    directory = SharedDirectoryStorage(path=str(tmp_path / "a b%"))
    s3 = S3Storage.model_validate(s3_server.storage("contract", prefix="p/q"))
    for storage in (directory, s3):
        made = open_trial(storage, tmp_path, "3-7", s3_server.environment())
        manifest = saved(made, tmp_path, "3-7-1-5", {"a": b"1"})
        location = location_of(made, manifest.checkpoint_id)
        assert is_manifest(location)
        opened, checkpoint_id = open_location(location, storage, s3_server.environment())
        assert opened.url == made.url
        assert checkpoints.read_manifest(opened, checkpoint_id) == manifest
    with pytest.raises(StoreError, match=r"TEST_S3_SECRET, which checkpoint_storage.secret_key_variable names, is not set"):
        open_trial(s3, tmp_path, "3-7", {"TEST_S3_KEY": "k"})
    with pytest.raises(StoreError, match=r"not in the experiment's checkpoint_storage"):
        open_location("s3://elsewhere/1/1-1/manifests/c.json", s3, s3_server.environment())


def test_a_wrong_credential_is_refused_without_showing_it(s3_server: S3Server) -> None:
    store = S3Store(
        "contract", "x", endpoint=f"127.0.0.1:{s3_server.port}", secure=False, region=None,
        access_key=ACCESS_KEY, secret_key="the-wrong-secret",
    )  # fmt: skip
    with pytest.raises(StoreError, match=r"s3://contract/x/a: \w+") as caught:
        store.put_bytes("a", b"1")
    assert "the-wrong-secret" not in str(caught.value)


def test_unfinished_uploads_are_found_and_removed(s3_server: S3Server, tmp_path: Path) -> None:
    s3 = s3_store(s3_server, "unfinished")
    s3._client._create_multipart_upload("contract", "unfinished/blobs/half", {})
    directory = DirectoryStore(tmp_path / "d")
    directory.put_bytes("blobs/whole", b"1")
    (tmp_path / "d" / "blobs" / ".partial-x").write_bytes(b"half")
    far_future_us = 2**62
    for store in (s3, directory):
        assert store.delete_unfinished(1) == [], "nothing is so old"
        assert len(store.delete_unfinished(far_future_us, dry_run=True)) == 1
        assert len(store.delete_unfinished(far_future_us)) == 1
        assert store.delete_unfinished(far_future_us) == []
    assert keys(directory) == ["blobs/whole"]
