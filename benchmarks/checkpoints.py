"""Checkpoints in S3, against a real server (SeaweedFS) on this machine: `python benchmarks/checkpoints.py`.

1. One file of 1 GiB: our save (hash, upload, manifest) against the client's own multipart upload of the same file, turn by turn.
2. 1,000 files of 100 KiB: our save against the same client, one file at a time.
3. Peak resident memory of a process that saves 64 MiB, 256 MiB and 1 GiB, above what it has before it saves.
4. The same save into a directory, against copying the files and fsync.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from minio import Minio

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.s3 import S3Store
from tenuto.kernel.storage.store import BUFFER_BYTES_MAX, PART_BYTES, Store
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server

MIB = 1 << 20
BUCKET = "bench"


def client(port: int) -> Minio:
    return Minio(f"127.0.0.1:{port}", ACCESS_KEY, SECRET_KEY, secure=False, region="us-east-1")


def store(port: int, prefix: str) -> S3Store:
    return S3Store(
        BUCKET, prefix, endpoint=f"127.0.0.1:{port}", secure=False, region=None, access_key=ACCESS_KEY, secret_key=SECRET_KEY
    )


def write_random(path: Path, size_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for _ in range(-(-size_bytes // MIB)):
            file.write(os.urandom(min(MIB, size_bytes)))


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def clear(target: Store) -> None:
    target.delete([entry.key for entry in target.entries("")])


def save(target: Store, directory: Path, name: str) -> None:
    checkpoints.save(target, Staged(name, directory, None))


def large_file(port: int, directory: Path, size_mib: int, rounds: int) -> dict[str, float]:
    write_random(directory / "model.safetensors", size_mib * MIB)
    mine, theirs = [], []
    for index in range(rounds):
        own = store(port, f"own-{index}")
        peer = store(port, f"peer-{index}")
        turns: list[tuple[list[float], Callable[[], object]]] = [
            (
                theirs,
                lambda peer=peer: client(port).fput_object(  # type: ignore[misc]
                    BUCKET, f"{peer._prefix}/f", str(directory / "model.safetensors"), part_size=PART_BYTES,
                    num_parallel_uploads=BUFFER_BYTES_MAX // PART_BYTES,
                ),
            ),
            (mine, lambda own=own, index=index: save(own, directory, f"c{index}")),  # type: ignore[misc]
        ]  # fmt: skip
        for results, work in turns if index % 2 else reversed(turns):
            results.append(timed(work))
        clear(own)
        clear(peer)
    ratio = statistics.median(b / a for a, b in zip(mine, theirs, strict=True))
    return {
        "own_mib_per_s": size_mib / statistics.median(mine),
        "client_mib_per_s": size_mib / statistics.median(theirs),
        "ratio": ratio,
    }


def small_files(port: int, directory: Path, files: int, rounds: int) -> dict[str, float]:
    for index in range(files):
        write_random(directory / f"{index:04}.bin", 100 * 1024)
    mine, theirs = [], []
    for index in range(rounds):
        own, peer, one = store(port, f"small-own-{index}"), store(port, f"small-peer-{index}"), client(port)

        def one_at_a_time(one: Minio = one, prefix: str = peer._prefix) -> None:
            for path in sorted(directory.iterdir()):
                one.fput_object(BUCKET, f"{prefix}/{path.name}", str(path))

        theirs.append(timed(one_at_a_time))
        mine.append(timed(lambda own=own, index=index: save(own, directory, f"c{index}")))  # type: ignore[misc]
        clear(own)
        clear(peer)
    return {
        "own_files_per_s": files / statistics.median(mine),
        "one_at_a_time_files_per_s": files / statistics.median(theirs),
        "ratio": statistics.median(b / a for a, b in zip(mine, theirs, strict=True)),
    }


def memory(port: int, directory: Path, sizes_mib: list[int]) -> dict[str, float]:
    found = {}
    for size_mib in sizes_mib:
        write_random(directory / "model.safetensors", size_mib * MIB)
        done = subprocess.run(
            [sys.executable, __file__, "--save", str(directory), "--port", str(port)], check=True, capture_output=True, text=True
        )
        found[f"peak_mib_above_start_at_{size_mib}_mib"] = float(done.stdout)
        clear(store(port, "memory"))
    return found


def save_and_measure(directory: Path, port: int) -> None:
    """In a process of its own: prints how far its resident memory grew while it saved, in MiB."""
    target = store(port, "memory")
    target.put_bytes("warm", b"1")  # what the first request loads is not the upload's
    before = peak_kib()
    save(target, directory, "c")
    print((peak_kib() - before) / 1024)


def peak_kib() -> int:
    """Of this process. Not `ru_maxrss`: that begins with the size of the process that forked this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def into_a_directory(directory: Path, size_mib: int, rounds: int) -> dict[str, float]:
    mine, copies = [], []
    source = directory / "source" / "model.safetensors"
    write_random(source, size_mib * MIB)
    for index in range(rounds):
        staged = directory / f"staged-{index}"
        staged.mkdir()
        shutil.copyfile(source, staged / source.name)
        target = DirectoryStore(directory / f"store-{index}")
        mine.append(timed(lambda target=target, staged=staged: save(target, staged, "c")))  # type: ignore[misc]

        def copy(to: Path = directory / f"copy-{index}") -> None:
            with source.open("rb") as read, to.open("wb") as write:
                shutil.copyfileobj(read, write, MIB)
                write.flush()
                os.fsync(write.fileno())

        copies.append(timed(copy))
        shutil.rmtree(target.root)
        (directory / f"copy-{index}").unlink()
    return {"own_mib_per_s": size_mib / statistics.median(mine), "copy_and_fsync_mib_per_s": size_mib / statistics.median(copies)}


@contextmanager
def server() -> Iterator[int]:
    directory = Path(tempfile.mkdtemp(prefix="tenuto-bench-s3-"))
    made = S3Server(directory)
    try:
        made.start()
        made.make_bucket(BUCKET)
        yield made.port
    finally:
        made.kill()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.save:
        save_and_measure(options.save, options.port)
        return
    with server() as port, tempfile.TemporaryDirectory(prefix="tenuto-bench-") as name:
        root = Path(name)
        for title, work in (
            ("one file", lambda: large_file(port, root / "large", options.size_mib, options.rounds)),
            ("many files", lambda: small_files(port, root / "small", options.files, options.rounds)),
            ("memory", lambda: memory(port, root / "memory", [64, 256, options.size_mib])),
            ("directory", lambda: into_a_directory(root / "directory", options.size_mib, options.rounds)),
        ):
            print(json.dumps({title: {key: round(value, 2) for key, value in work().items()}}), flush=True)


if __name__ == "__main__":
    main()
