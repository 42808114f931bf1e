"""Checkpoints in S3, against a real server (SeaweedFS) on this machine: `python benchmarks/checkpoints.py`.

1. One file of 1 GiB: our save (hash, upload, manifest) against the client's own multipart upload of the same file, turn by turn.
2. 1,000 files of 100 KiB: our save against the same client, one file at a time, turn by turn.
   Beside the rates: processor seconds of client and server together, which other processes on the machine disturb less.
3. Peak resident memory of a process that saves 64 MiB, 256 MiB and 1 GiB (parts of --size-mib), above what it has before it
   saves.
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

import psutil
from figures import figure, parse
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


Times = tuple[float, float]
"""Wall seconds, and processor seconds of this process and the server."""


def timed(work: Callable[[], object], server: psutil.Process | None = None) -> Times:
    def processor() -> float:
        spent = server.cpu_times() if server is not None else None
        return time.process_time() + (spent.user + spent.system if spent is not None else 0.0)

    before = time.perf_counter(), processor()
    work()
    return time.perf_counter() - before[0], processor() - before[1]


def summary(mine: list[Times], theirs: list[Times], amount: float, unit: str, peer: str) -> dict[str, float]:
    def median(times: list[Times], kind: int) -> float:
        return statistics.median(item[kind] for item in times)

    pairs = list(zip(mine, theirs, strict=True))
    return {
        f"own_{unit}": amount / median(mine, 0),
        f"{peer}_{unit}": amount / median(theirs, 0),
        "ratio": statistics.median(b[0] / a[0] for a, b in pairs),
        "own_cpu_s": median(mine, 1),
        f"{peer}_cpu_s": median(theirs, 1),
        "cpu_ratio": statistics.median(b[1] / a[1] for a, b in pairs),
    }


def clear(target: Store) -> None:
    target.delete([entry.key for entry in target.entries("")])


def save(target: Store, directory: Path, name: str) -> None:
    checkpoints.save(target, Staged(name, directory, None))


def large_file(made: S3Server, directory: Path, size_mib: int, rounds: int) -> dict[str, float]:
    write_random(directory / "model.safetensors", size_mib * MIB)
    mine: list[Times] = []
    theirs: list[Times] = []
    for index in range(rounds):
        own, peer = store(made.port, f"own-{index}"), store(made.port, f"peer-{index}")

        def multipart(prefix: str = peer._prefix) -> None:
            client(made.port).fput_object(
                BUCKET, f"{prefix}/f", str(directory / "model.safetensors"), part_size=PART_BYTES,
                num_parallel_uploads=BUFFER_BYTES_MAX // PART_BYTES,
            )  # fmt: skip

        in_turn(made, index, (mine, lambda own=own, index=index: save(own, directory, f"c{index}")), (theirs, multipart))  # type: ignore[misc]
        clear(own)
        clear(peer)
    return summary(mine, theirs, size_mib, "mib_per_s", "client")


def small_files(made: S3Server, directory: Path, files: int, rounds: int) -> dict[str, float]:
    for index in range(files):
        write_random(directory / f"{index:04}.bin", 100 * 1024)
    mine: list[Times] = []
    theirs: list[Times] = []
    for index in range(rounds):
        own, peer = store(made.port, f"small-own-{index}"), store(made.port, f"small-peer-{index}")

        def one_at_a_time(prefix: str = peer._prefix) -> None:
            one = client(made.port)
            for path in sorted(directory.iterdir()):
                one.fput_object(BUCKET, f"{prefix}/{path.name}", str(path))

        in_turn(made, index, (mine, lambda own=own, index=index: save(own, directory, f"c{index}")), (theirs, one_at_a_time))  # type: ignore[misc]
        clear(own)
        clear(peer)
    return summary(mine, theirs, files, "files_per_s", "one_at_a_time")


def in_turn(made: S3Server, index: int, *turns: tuple[list[Times], Callable[[], object]]) -> None:
    """The other one first in every second round."""
    for results, work in turns if index % 2 else reversed(turns):
        results.append(timed(work, made.process))


def memory(made: S3Server, directory: Path, sizes_mib: list[int]) -> dict[str, float]:
    found = {}
    for size_mib in sizes_mib:
        write_random(directory / "model.safetensors", size_mib * MIB)
        done = subprocess.run(
            [sys.executable, __file__, "--save", str(directory), "--port", str(made.port)],
            check=True,
            capture_output=True,
            text=True,
        )
        found[f"peak_mib_above_start_at_{size_mib}_mib"] = float(done.stdout)
        clear(store(made.port, "memory"))
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
        mine.append(timed(lambda target=target, staged=staged: save(target, staged, "c"))[0])  # type: ignore[misc]

        def copy(to: Path = directory / f"copy-{index}") -> None:
            with source.open("rb") as read, to.open("wb") as write:
                shutil.copyfileobj(read, write, MIB)
                write.flush()
                os.fsync(write.fileno())

        copies.append(timed(copy)[0])
        shutil.rmtree(target.root)
        (directory / f"copy-{index}").unlink()
    return {"own_mib_per_s": size_mib / statistics.median(mine), "copy_and_fsync_mib_per_s": size_mib / statistics.median(copies)}


@contextmanager
def server(parent: Path | None) -> Iterator[S3Server]:
    directory = Path(tempfile.mkdtemp(prefix="tenuto-bench-s3-", dir=parent))
    made = S3Server(directory)
    try:
        made.start()
        made.make_bucket(BUCKET)
        yield made
    finally:
        made.kill()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--only", choices=["one file", "many files", "memory", "directory"])
    parser.add_argument("--server-directory", type=Path, help="where the server keeps its files, such as /dev/shm")
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parse(parser, rounds=1, size_mib=2, files=3)
    if options.save:
        save_and_measure(options.save, options.port)
        return
    with server(options.server_directory) as made, tempfile.TemporaryDirectory(prefix="tenuto-bench-") as name:
        root = Path(name)
        for title, work in (
            ("one file", lambda: large_file(made, root / "large", options.size_mib, options.rounds)),
            ("many files", lambda: small_files(made, root / "small", options.files, options.rounds)),
            ("memory", lambda: memory(made, root / "memory", sorted({max(1, options.size_mib // n) for n in (16, 4, 1)}))),
            ("directory", lambda: into_a_directory(root / "directory", options.size_mib, options.rounds)),
        ):
            if options.only in (None, title):
                found = work()
                print(json.dumps({title: {key: round(value, 2) for key, value in found.items()}}), flush=True)
                tell(title, found)


def tell(title: str, found: dict[str, float]) -> None:
    match title:
        case "one file":
            peer, own, ratio, bar = found["client_mib_per_s"], found["own_mib_per_s"], found["ratio"], "ratio at least 0.8"
            figure("save of one file", own, "MiB/s", beside="multipart upload of the client", of=peer, ratio=ratio, bar=bar)
        case "many files":
            peer, own, ratio = found["one_at_a_time_files_per_s"], found["own_files_per_s"], found["ratio"]
            bar = "ratio at least 3"
            figure("save of many files", own, "files/s", beside="the client, one at a time", of=peer, ratio=ratio, bar=bar)
        case "memory":
            for name, peak in found.items():
                figure(name.replace("_", " "), peak, "MiB")
        case "directory":
            peer = found["copy_and_fsync_mib_per_s"]
            figure("save into a directory", found["own_mib_per_s"], "MiB/s", beside="copy and fsync", of=peer)


if __name__ == "__main__":
    main()
