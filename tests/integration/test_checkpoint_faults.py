"""What must hold when a save is cut off: a killed process at each step, a store that dies in the middle, a full disk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.manifest import Manifest
from tenuto.kernel.storage.s3 import S3Store
from tenuto.kernel.storage.store import PART_BYTES, Store, StoreError
from tests.support.s3_server import SECRET_KEY, S3Server

FIRST, SECOND = "1-1-1-10", "1-1-1-20"
FILES = {f"part-{index}": bytes([index]) * 3000 for index in range(4)} | {"same": b"same" * 1000}

SAVER = """
import os, signal, sys
from pathlib import Path
from tenuto.kernel.storage import checkpoints, directory
from tenuto.kernel.storage.checkpoints import Staged

root, staged, kill_at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
steps = 0

def step(event, arguments):
    # Each change of the file system is a step of the commit: the process dies just before one of them.
    global steps
    if event in ("os.rename", "os.mkdir", "os.remove", "open", "tempfile.mkstemp"):
        path = str(arguments[0])
        if event == "open" and (not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if not path.startswith((str(root), str(staged))):
            return
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

store = directory.DirectoryStore(root)
base = checkpoints.read_manifest(store, "1-1-1-10")
sys.addaudithook(step)
checkpoints.save(store, Staged("1-1-1-20", staged, base))
print(steps)
"""


def fill(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


def save(store: Store, staged: Path, checkpoint_id: str, base: Manifest | None = None) -> Manifest:
    return checkpoints.save(store, Staged(checkpoint_id, staged, base))


def kill_saver(directory: Path, kill_at: int) -> tuple[DirectoryStore, Manifest, int | None]:
    """A first checkpoint, then a second one by a process that is killed before its `kill_at`-th step. None: it was done."""
    store = DirectoryStore(directory / "store")
    first = save(store, fill(directory / "staged-1", FILES), FIRST)
    staged = fill(directory / "staged-2", {**FILES, "part-0": b"new", "part-1": b"newer"})
    done = subprocess.run(
        [sys.executable, "-c", SAVER, str(store.root), str(staged), str(kill_at)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return store, first, int(done.stdout) if done.returncode == 0 else None


def test_a_save_that_is_killed_before_any_of_its_steps_harms_nothing(tmp_path: Path) -> None:
    _, _, steps = kill_saver(tmp_path / "whole", 10_000)
    assert steps is not None
    assert steps >= 4, "two blobs and a manifest are put in place"
    for kill_at in range(1, steps + 1):
        store, first, survived = kill_saver(tmp_path / str(kill_at), kill_at)
        assert survived is None
        assert checkpoints.verify(store, first) == [], f"killed before step {kill_at}"
        if SECOND in checkpoints.list_manifests(store):  # a manifest is there only when all it names is
            assert checkpoints.verify(store, checkpoints.read_manifest(store, SECOND)) == []
        # The trial goes on: the next allocation saves under its own id; what was left is an orphan and can be removed.
        third = save(store, fill(tmp_path / str(kill_at) / "staged-3", FILES), "1-1-2-20", first)
        checkpoints.delete(store, SECOND)
        for entry in store.entries("blobs"):
            assert SECOND not in entry.key
        assert checkpoints.verify(store, third) == []
        assert checkpoints.verify(store, first) == []


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
    """Kills the server when the upload of the largest file has begun."""

    kill: Callable[[], None] = staticmethod(lambda: None)

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        if source.stat().st_size > PART_BYTES:
            threading.Timer(0.05, self.kill).start()
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


def test_a_process_that_is_killed_during_an_upload_leaves_no_checkpoint(s3_server: S3Server, tmp_path: Path) -> None:
    store = s3_server.store("p/1/1-2")
    script = textwrap.dedent(
        f"""
        import os, signal, sys, threading
        from pathlib import Path
        from tenuto.kernel.storage import checkpoints
        from tenuto.kernel.storage.checkpoints import Staged
        from tests.support.s3_server import S3Server
        server = S3Server(Path({str(s3_server.directory)!r}))
        server.port, server.bucket = {s3_server.port}, {s3_server.bucket!r}
        store = server.store("p/1/1-2")
        original = store._client._upload_part
        parts = 0
        def upload(*arguments, **named):
            global parts
            parts += 1
            if parts == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)
        store._client._upload_part = upload
        checkpoints.save(store, Staged("1-1-1-20", Path(sys.argv[1]), None))
        """
    )
    staged = fill(tmp_path / "staged", {"big": random.Random(8).randbytes(4 * PART_BYTES)})
    for kill_at in (1, 3):
        done = subprocess.run(
            [sys.executable, "-c", script, str(staged), str(kill_at)], check=False, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert list(store.entries("")) == []
    assert len(store.delete_unfinished(2**62)) == 2, "the parts that were sent are found and freed"
    assert store.delete_unfinished(2**62) == []
