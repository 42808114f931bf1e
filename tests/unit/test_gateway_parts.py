"""The gateway's small parts: multipart reader, context store, token file, tar stream."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
import stat
import tarfile
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.bus import BusState
from tenuto.schemas.events.trial import CheckpointFile
from tenuto.services.gateway.experiments.adapters.contexts import ContextRefused, Incoming, StoredContext
from tenuto.services.gateway.http import tokens as token
from tenuto.services.gateway.http.multipart import MultipartError, PartBegins, PartData, boundary_of, parts
from tenuto.services.gateway.log.routes.status import _bus_state
from tenuto.services.gateway.reader.archives import UNPACKED_BYTES_FREE, judge
from tenuto.services.gateway.trials.adapters.downloads import tar_size_bytes, tar_stream

SLOW_SECONDS = 0.75
"""As a machine of two processors needs where ten programs want them."""


async def stream(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def collect(body: bytes, boundary: bytes, cuts: list[int]) -> list[tuple[str, bytes]]:
    """The parts of a body that arrives cut at these places."""
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    chunks = [body[start:end] for start, end in pairwise(places)]
    found: list[tuple[str, bytes]] = []
    async for piece in parts(stream(chunks), boundary):
        if isinstance(piece, PartBegins):
            found.append((piece.name, b""))
        elif isinstance(piece, PartData):
            found[-1] = (found[-1][0], found[-1][1] + piece.data)
    return found


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=200) | st.sampled_from([b"\r\n--", b"\r\n--b", b"--b--", b"\r\n\r\n", b"\r"]),
    st.binary(max_size=200),
    st.lists(st.integers(0, 10_000), max_size=30),
)
async def test_multipart_gives_back_what_was_sent_however_it_is_cut(first: bytes, second: bytes, cuts: list[int]) -> None:
    request = httpx.Request("POST", "http://x", files={"config": (None, first), "context": ("c.tar.gz", second)})
    boundary = boundary_of(request.headers["content-type"])
    assert await collect(request.read(), boundary, cuts) == [("config", first), ("context", second)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "ends in the middle"),
        (b"--b\r\n", "ends in the middle"),
        (b"--b\r\n\r\ndata\r\n--b--", "no name|not well-formed"),
        (b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nda', "ends in the middle"),
        (b"--b\r\n" + b"h" * 20_000, "header size"),
        (b"no boundary at all", "not well-formed"),
        (b"--b\r\nX: 1\r\n\r\ndata\r\n--b--", "no name"),
        (b"--b\r\n" + b"X: 1\r\n" * 9, "header count"),
    ],
)
async def test_malformed_multipart_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(MultipartError, match=reason):
        await collect(body, b"b", [])


async def test_a_large_upload_is_never_in_memory() -> None:
    chunk = b"\r\n-" + os.urandom(1 << 20)  # begins like a delimiter: what is held back must be given out again

    async def upload() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="context"\r\n\r\n'
        for _ in range(64):
            yield chunk
        yield b"\r\n--b--\r\n"

    received = hashlib.sha256()
    tracemalloc.start()
    try:
        async for piece in parts(upload(), b"b"):
            if isinstance(piece, PartData):
                received.update(piece.data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert received.digest() == hashlib.sha256(chunk * 64).digest()
    assert peak_bytes < 8 * len(chunk)


@pytest.mark.parametrize("header", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=" + "x" * 71])
def test_a_request_that_is_not_multipart_is_refused(header: str) -> None:
    with pytest.raises(MultipartError):
        boundary_of(header)


def archive(members: dict[str, bytes], link: str | None = None, links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        if link:
            info = tarfile.TarInfo(link)
            info.type = tarfile.CHRTYPE
            tar.addfile(info)
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


async def judged(path: Path) -> frozenset[str]:
    return judge(path)


async def store(directory: Path, data: bytes, bytes_max: int = 100_000) -> StoredContext:
    with Incoming(directory, bytes_max) as incoming:
        for start in range(0, len(data), 1000):
            incoming.write(data[start : start + 1000])
        return await incoming.store(judged)


async def test_a_context_is_stored_by_its_content(tmp_path: Path) -> None:
    data = archive({"model_def.py": b"x = 1", "lib/a.py": b""})
    stored = await store(tmp_path / "contexts", data)
    assert stored.context_hash == hashlib.sha256(data).hexdigest()
    assert [path.name for path in (tmp_path / "contexts").iterdir()] == [f"{stored.context_hash}.tar.gz"]
    assert (tmp_path / "contexts" / f"{stored.context_hash}.tar.gz").read_bytes() == data
    assert stored.has_module("model_def")
    assert stored.has_module("lib.a")
    assert not stored.has_module("other")
    assert await store(tmp_path / "contexts", data) == stored


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"no archive", "invalid"),
        (gzip.compress(b"no tar file" * 100), "invalid"),
        (archive({"a.py": b"x" * 2000})[:-20], "invalid"),
        (archive({"../a.py": b""}), "invalid"),
        (archive({"/etc/passwd": b""}), "invalid"),
        (archive({}, link="device"), "invalid"),
        (os.urandom(100_001), "too_large"),
        (archive({"zeros": b"\0" * (UNPACKED_BYTES_FREE + 1)}), "too_large"),
        (b"", "invalid"),
        (archive({}, links={"a": "x/" * 16_000}), "invalid"),  # longer than any path
        (archive({}, links={"a": "/".join("bbbbbbb"), **{"b" + "/b" * i: "/".join("bbbbbbb") for i in range(6)}}), "invalid"),
        (archive({}, links={f"{i}": "x/../" * 190 for i in range(3_000)}), "invalid"),  # each short, together a million names
        (archive({}, links={"a": "x/" * 499, "b": "a/a", "c": "y/" * 400 + "../" * 400 + "a/" + "z/" * 490}), "invalid"),
    ],
)
async def test_a_bad_context_is_refused_and_leaves_nothing(tmp_path: Path, data: bytes, code: str) -> None:
    with pytest.raises(ContextRefused) as refused:
        await store(tmp_path, data)
    assert refused.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "gateway" / "token"
    made = token.load_or_make(path)
    assert len(made) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token.load_or_make(path) == made
    assert [item.name for item in path.parent.iterdir()] == ["token"]
    assert token.matches(f"Bearer {made}", made)
    for wrong in ("", made, f"Basic {made}", f"Bearer {made}x", "Bearer "):
        assert not token.matches(wrong, made)


def test_a_token_file_that_others_can_read_or_that_is_empty_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o644)
    with pytest.raises(token.TokenError, match="chmod 600"):
        token.load_or_make(path)
    path.write_text("")
    path.chmod(0o600)
    with pytest.raises(token.TokenError, match="empty"):
        token.load_or_make(path)


def checkpoint(directory: Path, contents: dict[str, bytes]) -> list[CheckpointFile]:
    files = []
    for name, data in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
        files.append(CheckpointFile(path=name, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    return files


def test_a_checkpoint_arrives_as_it_was_saved(tmp_path: Path) -> None:
    contents = {"model.safetensors": os.urandom(3_000_000), "state/loader.json": b"{}", "é" * 80 + "/" + "n" * 60: b"long name"}
    files = checkpoint(tmp_path, contents)
    data = b"".join(tar_stream(lambda file: iter([contents[file.path]]), files))
    assert len(data) == tar_size_bytes(files)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        read = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert read == contents


async def test_a_relay_that_answers_slowly_is_not_said_to_be_away() -> None:
    async def ask(subject: str, body: bytes, seconds: float) -> bytes:
        async with asyncio.timeout(seconds):
            await asyncio.sleep(SLOW_SECONDS)
        return BusState(ok=True).to_json()

    assert (await _bus_state(cast(Any, SimpleNamespace(ask=ask)))).ok
