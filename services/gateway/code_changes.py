"""What differs between two packed model directories. Nothing in them is run or unpacked to disk."""

from __future__ import annotations

import ast
import difflib
import io
import tarfile
import warnings
import zlib
from pathlib import Path

from tenuto.services.gateway.policies.differences import CodeChange

FILES_SHOWN_MAX = 100
FILE_BYTES_MAX = 1 << 20
"""A larger file is compared, but its lines are not shown."""
DETAIL_CHARACTERS_MAX = 4_000
"""Of changed lines, per file."""
UNPACKED_BYTES_MAX = 1 << 30
"""Read of one archive. Submissions are far smaller; beyond it the rest counts as equal."""


def code_changes(a: Path, b: Path) -> list[CodeChange]:
    """By path. Empty where an archive is gone or unreadable: then only the hashes say that they differ."""
    try:
        left, right = _contents(a), _contents(b)
    except (OSError, tarfile.TarError, EOFError, zlib.error):
        return []
    changes = []
    for path in sorted(left.keys() | right.keys()):
        before, after = left.get(path), right.get(path)
        if before == after:
            continue
        if before is None or after is None:
            changes.append(CodeChange(path, "added" if before is None else "removed"))
        else:
            kind = "comments" if path.endswith(".py") and _same_program(before, after) else "changed"
            changes.append(CodeChange(path, kind, _changed_lines(path, before, after)))
        if len(changes) >= FILES_SHOWN_MAX:
            break
    return changes


def _contents(archive: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    total_bytes = 0
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            total_bytes += member.size
            if total_bytes > UNPACKED_BYTES_MAX:
                break
            if member.isreg():
                file = tar.extractfile(member)
                found[member.name] = file.read() if file else b""
            elif member.issym() or member.islnk():
                found[member.name] = b"link to " + member.linkname.encode()
    return found


def _same_program(before: bytes, after: bytes) -> bool:
    """Comments, layout and docstrings aside. A file that cannot be parsed is another one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _program(before) == _program(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _program(source: bytes) -> str:
    if len(source) > FILE_BYTES_MAX:
        raise ValueError("too large to parse")
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, False):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _changed_lines(path: str, before: bytes, after: bytes) -> str:
    if max(len(before), len(after)) > FILE_BYTES_MAX or b"\0" in before[:8192] or b"\0" in after[:8192]:
        return ""
    lines = [io.StringIO(text.decode(errors="replace")).readlines() for text in (before, after)]
    text = "".join(difflib.unified_diff(lines[0], lines[1], f"a/{path}", f"b/{path}", n=1))
    return text if len(text) <= DETAIL_CHARACTERS_MAX else text[:DETAIL_CHARACTERS_MAX] + "\n..."
