"""Saving that is interrupted: a killed process at each step, a store that dies in the middle, a full disk."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.manifest import Manifest, writer_of
from tenuto.kernel.storage.s3 import S3Store
from tenuto.kernel.storage.store import PART_BYTES, Store, StoreError
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config import ExperimentConfig
from tests.support.s3_server import SECRET_KEY, S3Server

FIRST, SECOND = "1-1-1-10", "1-1-1-20"
FILES = {f"part-{index}": bytes([index]) * 3000 for index in range(4)} | {"same": b"same" * 1000}

LARGE_PART_BYTES = 5 << 20
"""The smallest parts that S3 allows."""
SAVER = """
# Each line of the input: which store, and before which of its steps the saving process, a fork of this one, is to be killed.
import json, os, resource, signal, sys, threading
from pathlib import Path
from tenuto.kernel.storage import checkpoints, s3
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.schemas.assignments import Assignment
from tenuto.workers.checkpoints.location import Place
from tenuto.workers.checkpoints.writer import CheckpointWriter, Position
from tests.support.s3_server import S3Server

lock, steps, said = threading.Lock(), 0, []
s3.PART_BYTES = int(sys.argv[1])


def step(kill_at):
    global steps
    with lock:
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def directory_steps(store, kill_at):
    # Each change of the file system is a step.
    def hook(event, arguments):
        if event in ("os.rename", "os.mkdir", "os.remove", "open", "tempfile.mkstemp"):
            reads = event == "open" and (not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR))
            if str(arguments[0]).startswith(str(store.root)) and not reads:
                step(kill_at)

    sys.addaudithook(hook)


def request_steps(store, kill_at):
    # Each request is a step.
    send = store._client._http.urlopen

    def urlopen(*arguments, **named):
        step(kill_at)
        return send(*arguments, **named)

    store._client._http.urlopen = urlopen


def save(order):
    assignment = Assignment.from_json(json.dumps(order["assignment"]))
    if order["port"]:
        server = S3Server(Path("unused"))
        server.port, server.bucket = order["port"], order["bucket"]
        store = server.store(order["prefix"])
        request_steps_of = request_steps
    else:
        store = DirectoryStore(Path(order["root"]))
        request_steps_of = directory_steps
    place = Place(assignment, Path(order["root"]), environment={"TENUTO_ERROR_FILE": str(Path("error.txt").absolute())})
    place.store = store
    base = checkpoints.read_manifest(store, "1-1-1-10")

    def fill(into):
        for path in Path(order["files"]).iterdir():
            (into / path.name).write_bytes(path.read_bytes())

    def report(body):
        step(order["kill_at"])  # everything is stored, and nothing said of it yet
        Path(order["reported"]).write_bytes(body.to_json())

    writer = CheckpointWriter(assignment, place, report, said.append, base=base, sleep=lambda _: None)
    if order["file_bytes_max"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_bytes_max"], resource.RLIM_INFINITY))
    request_steps_of(store, order["kill_at"])
    writer.save_now(Position("1-1-1-20", 20, 20), lambda: fill)
    return steps


for line in sys.stdin:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps([save(json.loads(line)), said]).encode())
        os._exit(0)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([status, *json.loads(os.read(read, 10_000) or b"[0, []]")]), flush=True)
    os.close(read)
"""


class Saver:
    """Saves checkpoints in processes that it kills."""

    def __init__(self, directory: Path, server: S3Server | None) -> None:
        self.directory, self.server = directory, server
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(LARGE_PART_BYTES)], cwd=directory, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip

    def store(self, kill_at: int) -> Store:
        if self.server is not None:
            return self.server.store(f"killed/{kill_at}")
        return DirectoryStore(self.directory / "stores" / str(kill_at))

    def save(self, kill_at: int, files: dict[str, bytes], file_bytes_max: int = 0) -> int | None:
        """A first checkpoint, then a second one by a process that is killed before its `kill_at`-th step. Returns how many steps
        there were; None: it was killed. `file_bytes_max`: the disk takes no more of one file."""
        here = self.directory / str(kill_at)
        save(self.store(kill_at), fill(here / "first", FILES), FIRST)
        order = {
            "assignment": json.loads(assignment().to_json()),
            "port": self.server.port if self.server else 0,
            "bucket": self.server.bucket if self.server else "",
            "prefix": f"killed/{kill_at}",
            "root": str(self.directory / "stores" / str(kill_at)),
            "files": str(fill(here / "second", files)),
            "reported": str(here / "reported"),
            "kill_at": kill_at,
            "file_bytes_max": file_bytes_max,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        status, steps, self.said = json.loads(self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL)
        return int(steps) if status == 0 else None

    def reported(self, kill_at: int) -> bool:
        return (self.directory / str(kill_at) / "reported").exists()

    def close(self) -> None:
        self._process.communicate()


def assignment() -> Assignment:
    config = ExperimentConfig.model_validate(
        {
            "name": "n",
            "entrypoint": "m:T",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
        }
    )
    return Assignment(
        allocation_id="1-1-1", trial_id="1-1", trial_number=1, experiment_id=1, config=config, context_hash="",
        hyperparameters={}, trial_seed=1, experiment_seed=1, slots=(), checkpoint=None, target_length=100,
    )  # fmt: skip


def fill(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


def save(store: Store, staged: Path, checkpoint_id: str, base: Manifest | None = None) -> Manifest:
    return checkpoints.save(store, Staged(checkpoint_id, staged, base))


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_a_save_that_is_killed_before_any_of_its_steps_harms_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Before the first byte, between blobs, inside a large one, before the manifest, before the report."""
    changed = {**FILES, "part-0": b"new", "part-1": b"newer"}
    if kind == "s3":
        changed["large"] = random.Random(7).randbytes(LARGE_PART_BYTES + 1)
    saver = Saver(tmp_path, request.getfixturevalue("s3_server") if kind == "s3" else None)
    try:
        steps = saver.save(10_000, changed)
        assert saver.reported(10_000)
        assert steps is not None
        assert steps >= 7, "S3: a pack, a large file (four requests), a manifest, a report; the directory has more"
        stored_at = []
        for kill_at in range(1, steps + 1):
            assert saver.save(kill_at, changed) is None
            store = saver.store(kill_at)
            first = checkpoints.read_manifest(store, FIRST)
            assert checkpoints.verify(store, first) == [], f"killed before step {kill_at}"
            if SECOND in checkpoints.list_manifests(store):  # a manifest is there only when all it names is
                assert checkpoints.verify(store, checkpoints.read_manifest(store, SECOND)) == []
                stored_at.append(kill_at)
            assert not saver.reported(kill_at), "and what is reported is stored"
            # The trial goes on: the next allocation saves under its own id; what was left is an orphan and can be removed.
            third = save(store, fill(tmp_path / f"third-{kill_at}", changed), "1-1-2-20", first)
            checkpoints.delete(store, SECOND)
            store.delete_unfinished(2**62)
            assert {writer_of(entry.key) for entry in store.entries("")} <= {FIRST, "1-1-2-20"}
            assert store.delete_unfinished(2**62) == []
            assert checkpoints.verify(store, third) == []
            assert checkpoints.verify(store, first) == []
        assert stored_at[-1:] == [steps], "killed after the manifest, before the report"
    finally:
        saver.close()


def test_a_disk_that_takes_only_a_part_leaves_no_checkpoint_and_is_told(tmp_path: Path) -> None:
    saver = Saver(tmp_path, None)
    try:
        assert saver.save(1_000, {**FILES, "part-0": b"new" * 5000}, file_bytes_max=4096) is not None
    finally:
        saver.close()
    store = saver.store(1_000)
    assert not saver.reported(1_000)
    assert checkpoints.list_manifests(store) == [FIRST]
    assert checkpoints.verify(store, checkpoints.read_manifest(store, FIRST)) == []
    assert {writer_of(entry.key) for entry in store.entries("")} == {FIRST}
    assert store.delete_unfinished(2**62) == []
    assert "could not be saved under" in saver.said[0]
    assert "File too large" in saver.said[0]
    assert saver.said[-1].endswith("training goes on without it, free or repair that storage")


def test_a_deletion_that_is_killed_is_completed_by_the_next(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    class Dying(DirectoryStore):
        left = 10_000

        def delete(self, keys: Any) -> None:
            for key in keys:
                if self.left == 0:
                    raise Killed
                self.left -= 1
                super().delete([key])

    for left in range(4):
        store = Dying(tmp_path / str(left))
        first = save(store, fill(tmp_path / f"{left}-1", {"a": b"1", "b": b"2", "same": b"s"}), FIRST)
        second = save(store, fill(tmp_path / f"{left}-2", {"a": b"3", "b": b"4", "same": b"s"}), SECOND, first)
        store.left = left
        if left < 3:
            with pytest.raises(Killed):
                checkpoints.delete(store, FIRST)
        again = DirectoryStore(store.root)
        checkpoints.delete(again, FIRST)
        assert checkpoints.list_manifests(again) == [SECOND]
        assert checkpoints.verify(again, second) == []
        assert len(list(again.entries("blobs"))) == 3


class DiesDuringUpload(S3Store):
    """Kills the server between the parts of the largest file."""

    kill: Callable[[], None] = staticmethod(lambda: None)

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        if source.stat().st_size > PART_BYTES:
            send, parts = self._pool.urlopen, count(1)

            def urlopen(method: str, url: str, *arguments: Any, **named: Any) -> Any:
                if "partNumber" in url and next(parts) == 2:
                    self.kill()
                return send(method, url, *arguments, **named)

            self._pool.urlopen = urlopen  # type: ignore[method-assign]
        super().put_file(key, source, consume)


def test_a_server_that_dies_in_the_middle_of_an_upload(s3_server: S3Server, tmp_path: Path) -> None:
    store = s3_server.store("p/1/1-1")
    first = save(store, fill(tmp_path / "1", {"small": b"1"}), FIRST)
    dying = s3_server.store("p/1/1-1", DiesDuringUpload)
    dying.kill = s3_server.kill  # type: ignore[method-assign]
    big = random.Random(7).randbytes(3 * PART_BYTES)
    staged = Staged(SECOND, fill(tmp_path / "2", {"big": big, "small": b"2"}), first)
    with pytest.raises(StoreError, match=r"s3://test-\d+/p/1/1-1/blobs/\w+") as caught:
        checkpoints.save(dying, staged)
    assert SECRET_KEY not in str(caught.value)

    s3_server.start()  # it comes back with its disk
    again = s3_server.store("p/1/1-1")
    assert checkpoints.list_manifests(again) == [FIRST], "what was not stored whole is not a checkpoint"
    assert checkpoints.verify(again, first) == []
    second = checkpoints.save(again, staged)
    assert checkpoints.verify(again, second) == []
    target = tmp_path / "out"
    checkpoints.load(again, second, target)
    assert (target / "big").read_bytes() == big
