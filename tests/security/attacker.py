"""Shared parts of attackers' scripts: raw sockets, users with tokens of their own, and a bystander whose waiting is measured."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import socket
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpx

from tests.support.live_cluster import LiveCluster

CONFIG = """
name: digits
entrypoint: model_def:Trial
searcher: {name: single, metric: accuracy, smaller_is_better: false, max_length: {batches: 100}}
resources: {slots_per_trial: 1, pool: nobody}
"""
"""Waits for ever in a pool without agents: what is tried is the door, not the training."""
ASK_SECONDS = 0.02
"""Between two questions of a bystander: fewer than one user may send."""
ANSWER_SECONDS_MAX = 15.0
"""A bystander's answer takes milliseconds; this is far below what each attack took, and far above a crowded machine's."""


def archive(members: dict[str, bytes] | None = None, links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in (members or {"model_def.py": b"class Trial: ..."}).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return gzip.compress(buffer.getvalue(), mtime=0)  # the same bytes whenever it is made


def huge_header() -> bytes:
    """An extended header of 200 MB, packed to 200 kB: its reader would hold all of it in memory."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 200 << 20
    return gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + bytes(header.size), compresslevel=1)


class Door:
    """The REST door as one user."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self._open: list[Any] = []
        self.http = httpx.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60)

    def submit(self, config: str | bytes = CONFIG, context: bytes | None = None, **headers: str) -> httpx.Response:
        files: Any = {"config": (None, config), "context": ("context.tar.gz", archive() if context is None else context)}
        return self.http.post("/experiments", files=files, headers=headers)

    def refused(self, response: httpx.Response, status: int) -> str:
        """The sentence of a refusal with this status."""
        assert response.status_code == status, f"{response.status_code}: {response.text[:500]}"
        return str(response.json()["error"]["message"])

    def raw(self) -> socket.socket:
        parts = urlsplit(self.url)
        connection = socket.create_connection((parts.hostname, parts.port), timeout=60)
        self._open.append(connection)
        return connection

    def reading(self, connection: socket.socket) -> BinaryIO:
        file = connection.makefile("rb")
        self._open.append(file)
        return file

    def close(self) -> None:
        for item in reversed([self.http, *self._open]):
            item.close()

    def head(self, line: str, *headers: str) -> bytes:
        return "\r\n".join([line, "Host: tenuto", f"Authorization: Bearer {self.token}", *headers, "", ""]).encode()


@dataclass
class Waiting:
    longest_seconds: float = 0.0
    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    """Replies that were not the expected answer."""


@contextlib.contextmanager
def bystander(door: Door) -> Iterator[Waiting]:
    """Somebody who asks the whole time, and must not notice the attack."""
    found, stop = Waiting(), Event()

    def ask() -> None:
        with httpx.Client(base_url=door.url, timeout=120, headers={"Authorization": f"Bearer {door.token}"}) as http:
            while not stop.is_set():
                began = time.monotonic()
                try:
                    answer = http.get("/api/v1/user")
                except httpx.HTTPError as error:
                    found.wrong.append(repr(error))
                    continue
                if answer.status_code != 200:
                    found.wrong.append(f"{answer.status_code}: {answer.text[:200]}")
                found.longest_seconds = max(found.longest_seconds, time.monotonic() - began)
                found.answers += 1
                stop.wait(ASK_SECONDS)

    asking = Thread(target=ask)
    asking.start()
    try:
        yield found
    finally:
        stop.set()
        asking.join()
    assert found.answers
    assert found.wrong == []
    assert found.longest_seconds < ANSWER_SECONDS_MAX


def door_of(cluster: LiveCluster) -> Door:
    return Door(cluster.state()["url"], (cluster.directory / "rest.token").read_text().strip())


def user_of(admin: Door, name: str) -> Door:
    made = admin.http.post("/users", json={"name": name})
    assert made.status_code == 201, made.text
    return Door(admin.url, json.loads(made.text)["token"])
