"""One manifest from those of several ranks."""

from __future__ import annotations

import pytest

from tenuto.kernel.storage.manifest import Manifest, Pack, StoredFile
from tenuto.workers.core_api.shards import merged
from tenuto.workers.errors import UserError


def stored(path: str, content: int, blob: str | None = None, offset: int | None = None) -> StoredFile:
    sha256 = f"{content:064x}"
    return StoredFile(path=path, size_bytes=10, sha256=sha256, blob=blob or f"blobs/{sha256}.1-1-1-5", offset=offset)


def part(*files: StoredFile, packs: tuple[Pack, ...] = ()) -> Manifest:
    return Manifest(checkpoint_id="1-1-1-5", files=files, packs=packs)


def test_files_and_packs_of_all_ranks_by_path() -> None:
    pack = Pack(blob="blobs/pack.1-1-1-5", size_bytes=20)
    packed = [stored(name, index, pack.blob, 10 * index) for index, name in enumerate(("b", "d"))]
    whole = merged([part(stored("c", 7)), part(*packed, packs=(pack,)), part(), part(stored("a", 8))])
    assert [file.path for file in whole.files] == ["a", "b", "c", "d"]
    assert whole.packs == (pack,)
    assert whole.size_bytes == 40


def test_the_same_contents_under_one_name_are_one_file_and_their_unused_pack_is_not_named() -> None:
    pack = Pack(blob="blobs/pack.1-1-1-5", size_bytes=10)
    whole = merged([part(stored("same", 7)), part(stored("same", 7, pack.blob, 0), packs=(pack,))])
    assert whole == part(stored("same", 7)).model_copy(update={"owners": ((0,), (0,))}), "both ranks own it"


def test_other_contents_under_one_name_are_refused_with_the_ranks() -> None:
    with pytest.raises(UserError, match=r"with other contents: weights \(ranks 1 and 2\)\. Put run\.rank into the names"):
        merged([part(), part(stored("weights", 1)), part(stored("weights", 2))])
