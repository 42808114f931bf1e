"""Contract of checkpoint stores, checked on each: a directory, S3 (a real server), a cloud's back ends, another package's."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged, Staged
from tenuto.kernel.storage.cloud import CloudStore
from tenuto.kernel.storage.definitions import DEFINITIONS
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.manifest import END_BYTES
from tenuto.kernel.storage.opening import open_store
from tenuto.kernel.storage.staging import PACK_BYTES_MAX, SMALL_BYTES_MAX
from tenuto.kernel.storage.store import PART_BYTES, NotStored, Store, StoreError, read_bytes
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.ids import location_of
from tests.support.example_plugins import importable
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, STORE, S3Server

_numbers = count(1)


def memory_store() -> Store:
    from obstore.store import MemoryStore

    return CloudStore(MemoryStore(), "gs://bucket/prefix")


@pytest.fixture(params=["directory", "s3", "cloud-memory", "cloud-s3", "plug-in"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "plug-in":
        with importable(request.getfixturevalue("example_plugins")):
            [own] = DEFINITIONS.validate_python({"own": {"type": "sqlite", "file": str(tmp_path / "store.db")}}).values()
            yield open_store(own, "a b")
    else:
        yield _own_store(request, tmp_path, f"a b/{next(_numbers)}")


def _own_store(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Store:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "store" / prefix)
    if request.param == "cloud-memory":
        return memory_store()
    server: S3Server = request.getfixturevalue("s3_server")
    if request.param == "s3":
        return server.store(prefix)
    from obstore.store import S3Store as ObstoreS3

    return CloudStore(
        ObstoreS3(
            server.bucket, prefix="cloud", endpoint=server.endpoint, region="us-east-1",
            access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY, client_options={"allow_http": True},
        ),
        "s3://bucket/cloud",
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
    with pytest.raises(NotStored, match="blobs/none"):
        list(store.stream("blobs/none", 3, 5))


def test_a_part_of_it_can_be_read(store: Store) -> None:
    store.put_bytes("blobs/x", b"0123456789")
    for offset, size_bytes, expected in (
        (0, 3, b"012"),
        (4, 2, b"45"),
        (7, None, b"789"),
        (8, 100, b"89"),
        (0, None, b"0123456789"),
    ):
        assert b"".join(store.stream("blobs/x", offset, size_bytes)) == expected
    for offset in (10, 11):
        with pytest.raises(NotStored, match="x"):
            list(store.stream("blobs/x", offset, 5))


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
    packed = store.packs_small_files
    assert len(keys(store, "blobs")) == (2 if packed else 3), "same and 1 (once for two files of one checkpoint), and 2"
    assert {file.blob for file in second.files if file.path == "same"} < {file.blob for file in first.files} or packed
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
        checkpoints.load(store, read, target)  # as after an attempt that failed in the middle
        assert (target / "deep/er/changes").read_bytes() == expected


def test_a_file_that_its_writer_closed_to_others_can_be_read_by_another_account(tmp_path: Path) -> None:
    source = fill(tmp_path, {"model": b"weights"}) / "model"
    source.chmod(0o600)
    store = DirectoryStore(tmp_path / "store")
    store.put_file("blobs/1", source, consume=True)
    assert (store.root / "blobs" / "1").stat().st_mode & 0o777 == 0o644


def test_deleting_one_keeps_what_others_share_and_may_be_done_twice(store: Store, tmp_path: Path) -> None:
    first = saved(store, tmp_path, "c1", {"same": b"same", "own": b"1"})
    second = saved(store, tmp_path, "c2", {"same": b"same", "own": b"2"}, first)
    saved(store, tmp_path, "c3", {"same": b"new", "own": b"3"}, second)
    for _ in range(2):
        checkpoints.delete(store, "c1")
        assert checkpoints.list_manifests(store) == ["c2", "c3"]
        assert checkpoints.verify(store, second) == []
    checkpoints.delete(store, "c2")
    assert len(keys(store)) == (2 if store.packs_small_files else 3)
    checkpoints.delete(store, "c3")
    assert keys(store) == []


@pytest.mark.parametrize("how", ["changed", "shorter", "gone"])
def test_damage_is_found_and_named(store: Store, tmp_path: Path, how: str) -> None:
    weights = b"weights" * (SMALL_BYTES_MAX // 7 + 1)  # alone in its blob
    manifest = saved(store, tmp_path, "c1", {"ok": b"fine", "also": b"fine too", "model": weights})
    [file] = [file for file in manifest.files if file.path == "model"]
    assert file.offset is None
    if how == "gone":
        store.delete([file.blob])
    else:
        store.put_bytes(file.blob, weights.replace(b"w", b"W", 1) if how == "changed" else b"weights")
    [problem] = checkpoints.verify(store, manifest)
    assert problem.startswith("model ")
    with pytest.raises(Damaged, match=r"^model "):
        checkpoints.load(store, manifest, tmp_path / "out")


@pytest.mark.parametrize(
    ("left", "damaged"), [(b"aaabbBcc", {"b"}), (b"aaabb", {"b", "c"}), (b"", {"a", "b", "c"}), (None, {"a", "b", "c"})]
)
def test_damage_inside_a_pack_is_found_and_named(store: Store, tmp_path: Path, left: bytes | None, damaged: set[str]) -> None:
    manifest = saved(store, tmp_path, "c1", {"a": b"aaa", "b": b"bbb", "c": b"cc", "empty": b""})
    if not store.packs_small_files:
        assert manifest.packs == (), "this store holds each file by itself"
        return
    [pack] = manifest.packs
    assert read_bytes(store, pack.blob, 100) == b"aaabbbcc"
    store.delete([pack.blob]) if left is None else store.put_bytes(pack.blob, left)
    assert {problem.partition(" ")[0] for problem in checkpoints.verify(store, manifest)} == damaged
    with pytest.raises(Damaged, match=r"^[abc] "):
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
    files = {f"d{i % 7}/{i}": b"%d" % i * 1000 for i in range(200)} | {"empty": b""}
    manifest = saved(store, tmp_path, "c1", files)
    assert len(keys(store, "blobs")) == (1 if store.packs_small_files else 201)
    checkpoints.load(store, manifest, tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files} == files
    in_turn = [(file.path, b"".join(chunks)) for file, chunks in checkpoints.read(store, manifest.files)]
    assert in_turn == sorted(files.items())


def test_a_pack_is_named_again_while_half_of_it_is_used(tmp_path: Path) -> None:
    store = memory_store()
    files = {f"{i}": b"%d" % i * 1000 for i in range(10)}
    first = saved(store, tmp_path, "c1", files)
    changed = files | {f"{i}": b"new %d" % i for i in range(4)}
    second = saved(store, tmp_path, "c2", changed, first)
    assert [pack.blob for pack in first.packs] == [pack.blob for pack in second.packs if pack.blob.endswith(".c1")]
    assert {file.path for file in second.files if file.blob.endswith(".c1")} == {f"{i}" for i in range(4, 10)}
    third = saved(store, tmp_path, "c3", changed | {f"{i}": b"newer %d" % i for i in range(4, 7)}, second)
    assert {file.path for file in third.files if file.blob.endswith(".c1")} == set(), "3 of 10 are too few: they are stored again"
    assert {file.path for file in third.files if file.blob.endswith(".c2")} == {f"{i}" for i in range(4)}
    for manifest in (first, second, third):
        assert checkpoints.verify(store, checkpoints.read_manifest(store, manifest.checkpoint_id)) == []
    checkpoints.delete(store, "c1")
    assert checkpoints.verify(store, second) == [], "it names the first one's pack"
    checkpoints.delete(store, "c2")
    assert {key.rpartition(".")[2] for key in keys(store, "blobs")} == {"c2", "c3"}, "the first one's pack is gone"
    assert checkpoints.verify(store, third) == []


def test_packs_are_bounded_and_large_files_stand_alone(tmp_path: Path) -> None:
    store = memory_store()
    mib = 1 << 20
    files = {f"{i:02}": bytes([i]) * mib for i in range(20)} | {
        "large": os.urandom(mib + 1),
        "larger": os.urandom(PART_BYTES + 1),
    }
    manifest = saved(store, tmp_path, "c1", files)
    assert sum(pack.size_bytes for pack in manifest.packs) <= 20 * mib
    assert all(pack.size_bytes <= PACK_BYTES_MAX for pack in manifest.packs)
    assert {file.path for file in manifest.files if file.offset is None} == {"large", "larger"}
    assert checkpoints.verify(store, manifest) == []


def test_a_large_file_is_stored_once_while_it_does_not_change(store: Store, tmp_path: Path) -> None:
    large = os.urandom(PART_BYTES + 3 * END_BYTES)
    middle = bytearray(large)
    middle[len(large) // 2] ^= 1  # same size, same ends
    first = saved(store, tmp_path, "c1", {"model": large})
    assert [file.sha256 for file in first.files] == [hashlib.sha256(large).hexdigest()]
    second = saved(store, tmp_path, "c2", {"model": large}, first)
    third = saved(store, tmp_path, "c3", {"model": bytes(middle), "twin": bytes(middle)}, second)
    fourth = saved(store, tmp_path, "c4", {"model": os.urandom(len(large))}, third)
    blobs = [{file.blob for file in manifest.files} for manifest in (first, second, third, fourth)]
    assert [len(item) for item in blobs] == [1, 1, 1, 1]
    assert len(set().union(*blobs)) == 3
    for manifest in (first, second, third, fourth):
        assert checkpoints.verify(store, checkpoints.read_manifest(store, manifest.checkpoint_id)) == []


def test_a_manifest_of_the_first_format_is_read_and_built_upon(store: Store, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"old").hexdigest()
    store.put_bytes(f"blobs/{sha256}.c1", b"old")
    old = {
        "format": 1,
        "checkpoint_id": "c1",
        "files": [{"path": "a", "size_bytes": 3, "sha256": sha256, "blob": f"blobs/{sha256}.c1"}],
    }
    store.put_bytes("manifests/c1.json", json.dumps(old).encode())
    first = checkpoints.read_manifest(store, "c1")
    assert checkpoints.verify(store, first) == []
    second = saved(store, tmp_path, "c2", {"a": b"old", "b": b"1", "c": b"2"}, first)
    assert [file.blob for file in second.files if file.path == "a"] == [f"blobs/{sha256}.c1"]
    checkpoints.delete(store, "c1")
    checkpoints.load(store, second, tmp_path / "out")
    assert (tmp_path / "out" / "a").read_bytes() == b"old"


def test_a_manifest_that_points_outside_its_packs_is_damaged(store: Store) -> None:
    file = {"path": "a", "size_bytes": 3, "sha256": "0" * 64, "blob": "blobs/p.c1", "offset": 8}
    for packs in ([], [{"blob": "blobs/p.c1", "size_bytes": 10}]):
        document = {"format": 2, "checkpoint_id": "c1", "files": [file], "packs": packs}
        store.put_bytes("manifests/c1.json", json.dumps(document).encode())
        with pytest.raises(Damaged, match="its manifest cannot be read"):
            checkpoints.read_manifest(store, "c1")


def test_locations_lead_back(tmp_path: Path, s3_server: S3Server) -> None:
    directory = Stores(tmp_path / "a b%")
    for stores, name in ((directory, "shared"), (s3_server.stores("p/q"), STORE)):
        made = stores.open_trial(name, "3-7")
        manifest = saved(made, tmp_path, "3-7-1-5", {"a": b"1"})
        location = location_of(name, "3-7", manifest.checkpoint_id)
        opened, checkpoint_id = stores.open_location(location, "other", "3-7")
        assert opened.url == made.url
        assert checkpoints.read_manifest(opened, checkpoint_id) == manifest
        opened, checkpoint_id = stores.open_location("s3://elsewhere/once/3/3-7/manifests/3-7-1-5.json", name)
        assert opened.url == made.url, "what was recorded before stores had names is looked for in the experiment's own"
    with pytest.raises(StoreError, match="There is no store 'objects' here"):
        directory.open_trial(STORE, "3-7")


def test_a_wrong_credential_is_refused_without_showing_it(s3_server: S3Server) -> None:
    store = s3_server.store("x", secret_key="the-wrong-secret")
    with pytest.raises(StoreError, match=r"s3://test-\d+/x/a: \w+") as caught:
        store.put_bytes("a", b"1")
    assert "the-wrong-secret" not in str(caught.value)


def test_unfinished_uploads_are_found_and_removed(s3_server: S3Server, tmp_path: Path) -> None:
    s3 = s3_server.store("unfinished")
    s3._client._create_multipart_upload(s3_server.bucket, "unfinished/blobs/half", {})
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
