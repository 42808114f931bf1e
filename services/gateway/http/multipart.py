"""Reads multipart/form-data (RFC 7578) as it arrives: a large file is handed on piece by piece and never held in memory.

The parsing is python-multipart's; here its callbacks become an asynchronous stream of pieces, and its errors sentences.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from tenuto.services.gateway.http.refusals import RequestRefused

HEADERS_MAX = 8
"""Most headers of one part: a disposition, a type, a length."""
HEADER_BYTES_MAX = 8 * 1024
"""Longest header: a name and a file name."""
BOUNDARY_CHARACTERS_MAX = 70  # RFC 2046


class MultipartError(RequestRefused, ValueError):
    """The body is not well-formed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The request is refused: {why}.")


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
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise MultipartError("the request must be multipart/form-data with the parts `config` and `context`")
    if len(boundary) > BOUNDARY_CHARACTERS_MAX:
        raise MultipartError(f"the boundary is longer than {BOUNDARY_CHARACTERS_MAX} characters")
    return boundary


class _Pieces:
    """Collects the parser's callbacks for one chunk."""

    def __init__(self, boundary: bytes) -> None:
        self.found: list[Piece] = []
        self.complete = False
        self._field, self._value = b"", b""
        self._name: str | None = None
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begin,
                "on_header_field": self._header_field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": lambda data, start, end: self.found.append(PartData(data[start:end])),
                "on_part_end": lambda: self.found.append(PartEnds()),
                "on_end": self._end,
            },
            max_header_count=HEADERS_MAX,
            max_header_size=HEADER_BYTES_MAX,
        )

    def of(self, chunk: bytes) -> list[Piece]:
        """Pieces that `chunk` completes. Raises MultipartError."""
        self.found = []
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise MultipartError(f"it is not well-formed multipart/form-data: {error}") from error
        return self.found

    def _part_begin(self) -> None:
        self._name = None

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            _, options = parse_options_header(self._value.decode("latin-1"))
            self._name = options[b"name"].decode("utf-8", "replace") if b"name" in options else None
        self._field, self._value = b"", b""

    def _headers_finished(self) -> None:
        if self._name is None:
            raise MultipartError("a part has no name")
        self.found.append(PartBegins(self._name))

    def _end(self) -> None:
        self.complete = True


async def parts(chunks: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Piece]:
    """PartBegins, PartData..., PartEnds of each part in turn. Raises MultipartError."""
    pieces = _Pieces(boundary)
    async for chunk in chunks:
        for piece in pieces.of(chunk):
            yield piece
        if pieces.complete:
            return
    raise MultipartError("the request ends in the middle of a part")
