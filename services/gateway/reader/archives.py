"""Judges a packed model directory without unpacking it: reads it to its end within bounds, and follows its links."""

from __future__ import annotations

import gzip
import posixpath
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tenuto.schemas.text import unprintable
from tenuto.services.gateway.http.refusals import RequestRefused

FILES_MAX = 20_000
"""Most files in one model directory; more is a data set. The same as the command line's."""
EXPANSION_MAX = 10
"""Most times its packed size that a model directory unpacks to, as text does ..."""
UNPACKED_BYTES_FREE = 64 << 20
"""... and bytes that a small archive may unpack to in any case."""
HEADER_BYTES_MAX = 64 << 10
"""Longest extended header: long names and links. Readers take one into memory whole."""
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 1_000
"""Longest path: the limit of file systems, less room for the directory of the unpacked archive."""
LINKS_FOLLOWED_MAX = 40
"""Most links followed in a row; the same as on Linux."""
LINK_PARTS_MAX = 1_000_000
"""Most names on the ways of all links together: dozens for each file that there may be. It takes a second to follow so many."""
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class ContextRefused(RequestRefused):
    """`str(error)` is one sentence for the user. `code`: too_large, invalid or no_space."""

    def __init__(self, message: str, code: str = "invalid") -> None:
        super().__init__(message)
        self.code = code


class _Member(tarfile.TarInfo):
    """Refuses members that the reader would take into memory whole."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _EXTENDED and self.size > HEADER_BYTES_MAX:
            raise ContextRefused(
                f"The archive has an extended header of {self.size} bytes, where names need less than {HEADER_BYTES_MAX}.",
                "too_large",
            )
        return super()._proc_member(archive)  # type: ignore[misc]


class _CountedReader:
    """Counts the unpacked bytes: headers, padding and all."""

    def __init__(self, source: IO[bytes], bytes_max: int) -> None:
        self._source, self._bytes_max = source, bytes_max
        self._bytes = 0

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._bytes += len(data)
        if self._bytes > self._bytes_max:
            raise ContextRefused(
                f"The model directory unpacks to more than {FILES_MAX} files or {self._bytes_max} bytes.", "too_large"
            )
        return data


def judge(path: Path) -> frozenset[str]:
    """Names at the top of the model directory. Raises ContextRefused; OSError where the file cannot be read."""
    bytes_max = max(UNPACKED_BYTES_FREE, EXPANSION_MAX * path.stat().st_size)
    try:
        with gzip.open(path) as unpacked:
            counted: Any = _CountedReader(unpacked, bytes_max)  # type: ignore[arg-type]
            with tarfile.open(fileobj=counted, mode="r|", tarinfo=_Member) as archive:
                names, links, hard = _contents(archive, bytes_max)
            while counted.read(1 << 20):
                pass  # what follows the end counts too, and must be whole
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError, RecursionError) as error:
        raise ContextRefused(f"The part `context` is not a readable tar.gz file: {error}.") from error
    _check_links(links, hard)
    return frozenset(names)


def _contents(archive: tarfile.TarFile, bytes_max: int) -> tuple[set[str], dict[str, str], list[tuple[str, str]]]:
    """(names at the top, targets of symbolic links by name, hard links with their targets). Raises ContextRefused."""
    names: set[str] = set()
    links: dict[str, str] = {}
    hard: list[tuple[str, str]] = []
    for count, member in enumerate(archive):
        if count >= FILES_MAX:
            message = f"The model directory unpacks to more than {FILES_MAX} files or {bytes_max} bytes."
            raise ContextRefused(message, "too_large")
        name = _checked(member)
        if name:
            names.add(name.split("/", 1)[0])
        if member.issym():
            links[name] = member.linkname
        elif member.islnk():
            hard.append((name, member.linkname))
    return names, links, hard


def _checked(member: tarfile.TarInfo) -> str:
    """Path of the member inside the model directory. Raises ContextRefused."""
    name = posixpath.normpath(member.name)
    outside = name.startswith(("/", "../")) or name == ".."
    if outside or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise ContextRefused(f"The archive has an entry that cannot be unpacked safely: {member.name[:PATH_BYTES_MAX]!r}.")
    for what in (member.name, member.linkname):
        if why := unprintable(what):
            raise ContextRefused(f"The archive has a name that cannot be shown: it {why}; rename {what[:NAME_BYTES_MAX]!r}.")
    if len(member.linkname.encode()) > PATH_BYTES_MAX:
        raise ContextRefused(f"The archive has a link to a path longer than {PATH_BYTES_MAX} bytes: {name[:80]}.")
    encoded = name.encode()
    if len(encoded) > PATH_BYTES_MAX or max(map(len, encoded.split(b"/"))) > NAME_BYTES_MAX:
        raise ContextRefused(
            f"The archive has a name longer than file systems take ({NAME_BYTES_MAX} bytes, {PATH_BYTES_MAX} with its folders): "
            f"{name[:80]}..."
        )
    return "" if name == "." else name


def _check_links(links: Mapping[str, str], hard: list[tuple[str, str]]) -> None:
    """A link must lead to something inside, also through other links. Raises ContextRefused."""
    ways = _Ways(links)
    for name, target in links.items():
        if posixpath.isabs(target) or not ways.inside(posixpath.dirname(name), target):
            raise ContextRefused(
                f"{name} links to {target}, outside the model directory: copy the file, or leave it out in .tenutoignore."
            )
    for name, target in hard:
        if posixpath.isabs(target) or not ways.inside("", target):
            raise ContextRefused(
                f"{name} is a hard link to {target}, outside the model directory: copy the file, or leave it out."
            )


class _Ways:
    """Follows the links of one archive, all together within LINK_PARTS_MAX."""

    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links
        self._parts = 0

    def inside(self, place: str, target: str) -> bool:
        """True if `target`, seen from the directory `place`, leads to something inside; False for a circle of links. Raises
        ContextRefused."""
        at = [""]
        """The path of each directory from the top to where we are: a way is joined once, and not for each of its names."""
        for part in filter(None, place.split("/")):
            at.append(f"{at[-1]}/{part}" if at[-1] else part)
        waiting = target.split("/")[::-1]
        followed = 0
        while waiting:
            self._count(len(at[-1]))
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if len(at) == 1:
                    return False
                at.pop()
                continue
            path = f"{at[-1]}/{part}" if at[-1] else part
            further = self._links.get(path)
            if further is None:
                at.append(path)
                continue
            followed += 1
            if followed > LINKS_FOLLOWED_MAX or posixpath.isabs(further):
                return False
            waiting.extend(further.split("/")[::-1])
        return True

    def _count(self, characters: int) -> None:
        self._parts += 1
        if self._parts > LINK_PARTS_MAX or characters > 2 * PATH_BYTES_MAX:
            raise ContextRefused(
                "The links of the archive lead along paths longer than file systems take; copy the files instead."
            )
