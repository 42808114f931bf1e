"""Archives of others are unpacked into their directory and nowhere else, also by a Python without filters of its own."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from tenuto.kernel import archives

BOTH = pytest.mark.parametrize("filters", [archives.FILTERS, False])


def packed(*members: tarfile.TarInfo) -> tarfile.TarFile:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for member in members:
            member.size = 3 if member.isreg() else 0
            tar.addfile(member, io.BytesIO(b"abc"))
    data.seek(0)
    return tarfile.open(fileobj=data)


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = kind, target, mode
    return found


@BOTH
@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("a/../../out")],
        [member("link", tarfile.SYMTYPE, "../out")],
        [member("link", tarfile.SYMTYPE, "/etc")],
        [member("hard", tarfile.LNKTYPE, "../outside")],
        [member("device", tarfile.CHRTYPE)],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("link", tarfile.SYMTYPE, "sub/.."), member("sub", tarfile.DIRTYPE), member("link/../../out")],
    ],
)
def test_what_leads_outside_is_refused(
    members: list[tarfile.TarInfo], filters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FILTERS", filters)
    (tmp_path / "outside").write_text("mine")
    directory = tmp_path / "in"
    directory.mkdir()
    with pytest.raises(tarfile.TarError), packed(*members) as tar:
        archives.extract_all(tar, directory)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "outside"}


@BOTH
def test_files_directories_and_links_within_are_kept(filters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FILTERS", filters)
    members = (
        member("sub", tarfile.DIRTYPE, mode=0o777), member("sub/file", mode=0o6777), member("link", tarfile.SYMTYPE, "sub/file"),
    )  # fmt: skip
    with packed(*members) as tar:
        archives.extract_all(tar, tmp_path)
    assert (tmp_path / "link").read_text() == "abc"
    assert (tmp_path / "sub/file").stat().st_mode & 0o7022 == 0
    assert (tmp_path / "sub/file").stat().st_uid == os.geteuid()
