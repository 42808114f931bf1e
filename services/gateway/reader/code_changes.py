"""Differences between two packed model directories. Nothing in them is run or unpacked to disk."""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import tarfile
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import load_yaml
from tenuto.schemas.record import IMPORT_PLACE, IMPORT_RECORD, IMPORT_SCRIPT
from tenuto.services.gateway.reader.changes import CodeChange, flat_settings

FILES_SHOWN_MAX = 100
FILE_BYTES_MAX = 1 << 20
"""Largest file whose changed lines are shown; a larger one is only compared."""
DETAIL_CHARACTERS_MAX = 4_000
"""Most characters of changed lines, per file."""
KEPT_BYTES_MAX = 32 << 20
"""Most bytes of one archive's files kept in memory, for showing lines; of files beyond it only the digests are compared."""
UNPACKED_BYTES_MAX = 4 << 30
"""Most unpacked bytes read of one archive. Submissions are far smaller; files beyond it count as equal."""
READ_BYTES = 1 << 20
NAME_CHARACTERS = 12
"""Characters of a file's hash that are shown."""
_LINK = b"link to "


@dataclass(frozen=True)
class _ChangedFile:
    digest: bytes
    content: bytes | None
    """Content of the file; None: too large to keep."""


def code_changes(a: Path, b: Path) -> list[CodeChange] | None:
    """Changes by path. None if an archive is missing or unreadable: then only the hashes say that they differ."""
    try:
        left, right = _contents(a), _contents(b)
    except (OSError, tarfile.TarError, EOFError, zlib.error):
        return None
    changes = []
    for path in sorted(_compared(left, right)):
        before, after = left.get(path), right.get(path)
        if before is None or after is None:
            changes.append(CodeChange(path, "added" if before is None else "removed", "", _name(before), _name(after)))
        elif before.digest != after.digest:
            changes.append(_changed(path, before, after))
        if len(changes) >= FILES_SHOWN_MAX:
            break
    return changes


def _compared(left: Mapping[str, _ChangedFile], right: Mapping[str, _ChangedFile]) -> set[str]:
    """Paths that are compared. A run that was made without a cluster has only the code on record that it imported; other files in
    the other one's directory are no difference."""
    imported = [side for side in (left, right) if IMPORT_SCRIPT in side]
    paths = {path for side in imported or (left, right) for path in side}
    added = (IMPORT_SCRIPT, IMPORT_PLACE)
    return {path for path in paths if not imported or (path not in added and not path.startswith(f"{IMPORT_RECORD}/"))}


def _changed(path: str, before: _ChangedFile, after: _ChangedFile) -> CodeChange:
    kind, detail = "changed", ""
    if before.content is not None and after.content is not None:
        if path.endswith(".py") and _same_program(before.content, after.content):
            kind = "comments"
        detail = _changed_lines(path, before.content, after.content)
        if "/" not in path and path.endswith((".yaml", ".yml")):
            change = CodeChange(path, kind, detail, _name(before), _name(after))
            return _changed_configuration(change, before.content, after.content)
    return CodeChange(path, kind, detail, _name(before), _name(after))


def _changed_configuration(change: CodeChange, before: bytes, after: bytes) -> CodeChange:
    """The change with the settings that differ, if both files are an experiment's configuration, which people keep beside the
    code."""
    try:
        both = [load_yaml(text) for text in (before, after)]
        if not all(isinstance(item, dict) and {"entrypoint", "searcher"} <= item.keys() for item in both):
            return change
        flat = [flat_settings(item) for item in both]
    except (ConfigError, TypeError, ValueError, RecursionError):  # not ours, or not as it is submitted
        return change
    changed = sorted(path for path in flat[0].keys() | flat[1].keys() if flat[0].get(path) != flat[1].get(path))
    return replace(change, settings=tuple(changed)) if changed else replace(change, kind="comments")


def _name(file: _ChangedFile | None) -> str | None:
    """Name of a file's content, for people: `sha256sum` shows the same beginning."""
    if file is None:
        return None
    return file.digest.decode(errors="replace") if file.digest.startswith(_LINK) else file.digest.hex()[:NAME_CHARACTERS]


def _contents(archive: Path) -> dict[str, _ChangedFile]:
    found: dict[str, _ChangedFile] = {}
    total_bytes = kept_bytes = 0
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            total_bytes += member.size
            if total_bytes > UNPACKED_BYTES_MAX:
                break
            if member.issym() or member.islnk():
                found[member.name] = _ChangedFile(_LINK + member.linkname.encode(errors="replace"), None)
            file = tar.extractfile(member) if member.isreg() else None
            if file is None:
                continue
            if member.size <= FILE_BYTES_MAX and kept_bytes + member.size <= KEPT_BYTES_MAX:
                content = file.read()
                kept_bytes += len(content)
                found[member.name] = _ChangedFile(hashlib.sha256(content).digest(), content)
            else:
                found[member.name] = _ChangedFile(_digest(file), None)
    return found


def _digest(file: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    while block := file.read(READ_BYTES):
        digest.update(block)
    return digest.digest()


def _same_program(before: bytes, after: bytes) -> bool:
    """True if only comments, layout and docstrings differ; False if a file cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _program(before) == _program(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _program(source: bytes) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, False):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _changed_lines(path: str, before: bytes, after: bytes) -> str:
    if b"\0" in before[:8192] or b"\0" in after[:8192]:
        return ""
    lines = [io.StringIO(text.decode(errors="replace")).readlines() for text in (before, after)]
    text = "".join(difflib.unified_diff(lines[0], lines[1], f"a/{path}", f"b/{path}", n=1))
    return text if len(text) <= DETAIL_CHARACTERS_MAX else text[:DETAIL_CHARACTERS_MAX] + "\n..."
