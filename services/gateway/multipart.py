"""Reads multipart/form-data (RFC 7578) as it arrives: a large file is handed on piece by piece and never held in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email.message import EmailMessage

HEADER_BYTES_MAX = 8 * 1024
"""Headers of one part: a name and a file name."""
BOUNDARY_CHARACTERS_MAX = 70  # RFC 2046


class MultipartError(ValueError):
    """The body is not well-formed; `str(error)` says why."""


@dataclass(frozen=True)
class PartBegins:
    name: str


@dataclass(frozen=True)
class PartData:
    data: bytes


@dataclass(frozen=True)
class PartEnds:
    pass


Piece = PartBegins | PartData | PartEnds


def boundary_of(content_type: str) -> bytes:
    """The boundary in a Content-Type header. Raises MultipartError."""
    message = EmailMessage()
    message["Content-Type"] = content_type
    boundary = message.get_param("boundary")
    if message.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
        raise MultipartError("the request must be multipart/form-data with the parts `config` and `context`")
    if len(boundary) > BOUNDARY_CHARACTERS_MAX:
        raise MultipartError(f"the boundary is longer than {BOUNDARY_CHARACTERS_MAX} characters")
    return boundary.encode("latin-1", "replace")


@dataclass
class _Reader:
    chunks: AsyncIterator[bytes]
    buffer: bytearray = field(default_factory=bytearray)

    async def more(self) -> None:
        async for chunk in self.chunks:
            if chunk:
                self.buffer += chunk
                return
        raise MultipartError("the request ends in the middle of a part")

    async def take_until(self, mark: bytes, limit: int) -> bytes:
        while (at := self.buffer.find(mark)) < 0:
            if len(self.buffer) > limit:
                raise MultipartError("the headers of a part are too long")
            await self.more()
        taken = bytes(self.buffer[:at])
        del self.buffer[: at + len(mark)]
        return taken

    async def take(self, count: int) -> bytes:
        while len(self.buffer) < count:
            await self.more()
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken


async def parts(chunks: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Piece]:
    """PartBegins, PartData..., PartEnds of each part in turn. Raises MultipartError."""
    reader = _Reader(chunks, bytearray(b"\r\n"))  # so that the first delimiter looks like the others
    delimiter = b"\r\n--" + boundary
    await reader.take_until(delimiter, HEADER_BYTES_MAX)
    while True:
        if await reader.take(2) == b"--":
            return
        # What was taken is the line's end, or padding before it.
        reader.buffer[:0] = b"\r\n"
        headers = await reader.take_until(b"\r\n\r\n", HEADER_BYTES_MAX)
        yield PartBegins(_name(headers))
        while (at := reader.buffer.find(delimiter)) < 0:
            safe = len(reader.buffer) - len(delimiter)
            if safe > 0:
                data = bytes(reader.buffer[:safe])
                del reader.buffer[:safe]
                yield PartData(data)
            await reader.more()
        if at:
            yield PartData(bytes(reader.buffer[:at]))
        del reader.buffer[: at + len(delimiter)]
        yield PartEnds()


def _name(headers: bytes) -> str:
    for line in headers.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            message = EmailMessage()
            message["Content-Disposition"] = value.strip()
            found = message.get_param("name", header="Content-Disposition")
            if isinstance(found, str):
                return found
    raise MultipartError("a part has no name")
