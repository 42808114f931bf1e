"""A real S3 server for tests and benchmarks: SeaweedFS, one process, killed at the end. It takes seconds to start, so tests share
one (the fixture `s3_server`), each with a bucket of its own."""

from __future__ import annotations

import io
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
from minio import Minio
from minio.deleteobjects import DeleteObject

from tenuto.kernel.storage.kinds.s3 import S3Definition
from tenuto.kernel.storage.s3 import S3Store
from tenuto.kernel.storage.stores import Stores
from tests.support import litter
from tests.support.ports import closed_port, own_port

S = TypeVar("S", bound=S3Store)

ACCESS_KEY = "tenuto-test"
SECRET_KEY = "tenuto-test-secret"
STORE = "objects"
"""Name of the store that a test's experiment names."""
START_SECONDS_MAX = 180.0
START_TRIES_MAX = 3
"""More than one, because another process may take a port between its choice and its use."""


class ServerEnded(AssertionError):
    pass


class S3Server:
    """`start` returns when requests are answered. The same directory may be started again after `kill`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bucket = "checkpoints"
        self.port, self._others = own_port(), [own_port() for _ in range(3)]
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = False
        self._sockets: list[Path] = []

    @classmethod
    @contextmanager
    def away(cls, directory: Path) -> Iterator[S3Server]:
        """A server that is never started: its port refuses connections."""
        with closed_port() as port:
            server = cls(directory)
            server.port = port
            yield server

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stores(self, prefix: str = "") -> Stores:
        """Declarations with one store, STORE, in this server's bucket."""
        return Stores(
            given={
                STORE: S3Definition(
                    type="s3",
                    bucket=self.bucket,
                    prefix=prefix,
                    endpoint=self.endpoint,
                    access_key=ACCESS_KEY,
                    secret_key=SECRET_KEY,
                )
            }
        )

    def start(self) -> None:
        for left in reversed(range(START_TRIES_MAX)):
            self._launch()
            try:
                self._wait()
                return
            except ServerEnded:
                if not left or self._answered:  # one that has answered must come back where it was
                    raise
                shutil.rmtree(self.directory)
                self.port, self._others = own_port(), [own_port() for _ in range(3)]

    def _launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        identities = self.directory / "s3.json"
        credential = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities.write_text(json.dumps({"identities": [{"name": "t", "credentials": [credential], "actions": actions}]}))
        program = shutil.which("weed") or str(Path(sys.executable).with_name("weed"))
        master, volume, filer = self._others
        grpc = {name: own_port() for name in ("master", "volume", "filer", "s3")}
        options = [
            f"-dir={self.directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-volume.max=50",
            *(f"-{name}.port.grpc={port}" for name, port in grpc.items()),
            "-master.volumeSizeLimitMB=1024", "-master.electionTimeout=1s",
            "-s3", f"-s3.port={self.port}",
            f"-s3.config={identities}", "-s3.port.iceberg=0", "-s3.port.lance=0",  # they have fixed ports
        ]  # fmt: skip
        # It makes them there whatever it is told, and leaves them where it is killed.
        sockets = [Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock") for name, port in grpc.items()]
        sockets += [Path(f"/tmp/seaweedfs-{name}-{port}.sock") for name, port in (("filer", filer), ("s3", self.port))]
        self._sockets += sockets
        for path in sockets:
            litter.outside("file", path)
        with (self.directory / "weed.log").open("ab") as log:
            command = [program, f"-logdir={self.directory}", "server", *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                # First without the client, which would wait longer from try to try.
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                self._write_and_read()
                self._answered = True
                return
            except Exception:
                text = (self.directory / "weed.log").read_text(errors="replace")[-2000:]
                if self._process.poll() is not None:
                    raise ServerEnded(f"the S3 server ended: {text}") from None
                assert time.monotonic() < deadline, f"the S3 server does not answer: {text}"
                time.sleep(0.02)

    def _write_and_read(self) -> None:
        """Stores an object and reads it. The server answers some seconds before it can do so: until then it refuses writes, or
        answers reads with 500. Raises the client's exceptions."""
        client = self.client()
        self.make_bucket("ready")
        client.put_object("ready", "written", io.BytesIO(b"1"), 1)
        if self._answered and client.bucket_exists(self.bucket):
            for item in client.list_objects(self.bucket, recursive=True):
                response = client.get_object(self.bucket, item.object_name or "")
                response.read()
                response.close()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def client(self) -> Minio:
        return Minio(f"127.0.0.1:{self.port}", ACCESS_KEY, SECRET_KEY, secure=False, region="us-east-1")

    def store(self, prefix: str, kind: type[S] = S3Store, **changes: str) -> S:  # type: ignore[assignment]
        """A store in the server's bucket."""
        keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, **changes}
        return kind(self.bucket, prefix, endpoint=f"127.0.0.1:{self.port}", secure=False, region=None, **keys)

    def make_bucket(self, name: str) -> None:
        client = self.client()
        if not client.bucket_exists(name):
            client.make_bucket(name)

    def remove_bucket(self, name: str) -> None:
        """Removes the bucket and its objects."""
        client = self.client()
        objects = client.list_objects(name, recursive=True)
        list(client.remove_objects(name, (DeleteObject(item.object_name or "") for item in objects)))
        client.remove_bucket(name)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        while self._sockets:
            self._sockets.pop().unlink(missing_ok=True)
