"""Files of a packed model directory, as the code browser shows them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tenuto.services.gateway.reader import context_files
from tenuto.services.gateway.reader.context_files import NoContext, content, listed


def packed(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(_directory("data"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        for name, data in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def _directory(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    return info


def test_files_are_listed_and_read_but_no_links(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", model="class Trial: ü".encode(), data__weights=b"\0\1", **{"./late.py": b"x"})
    assert listed(archive) == {"files": [["data/weights", 2], ["late.py", 1], ["model", 15]], "more": False}
    assert content(archive, "model") == {"size_bytes": 15, "text": "class Trial: ü", "cut": False}
    assert content(archive, "late.py") == {"size_bytes": 1, "text": "x", "cut": False}
    assert content(archive, "data/weights") == {"size_bytes": 2, "text": None, "cut": False}
    for name in ("link", "data", "../model", "/etc/passwd", ""):
        assert content(archive, name) is None


def test_what_is_too_large_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(tmp_path / "a.tar.gz", a=b"12345678", b=b"")
    monkeypatch.setattr(context_files, "TEXT_BYTES_MAX", 4)
    monkeypatch.setattr(context_files, "FILES_LISTED_MAX", 1)
    assert content(archive, "a") == {"size_bytes": 8, "text": "1234", "cut": True}
    assert listed(archive) == {"files": [["a", 8]], "more": True}


def test_an_archive_that_is_gone_or_cut_is_no_context(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", a=bytes(100_000))
    archive.write_bytes(archive.read_bytes()[:60])
    for path in (archive, tmp_path / "gone"):
        with pytest.raises(NoContext):
            listed(path)
        with pytest.raises(NoContext):
            content(path, "b")
