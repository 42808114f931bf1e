"""Declaring stores on the command line: each mistake is one sentence, and a trial of a store leaves nothing in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.cli import stores
from tenuto.cli.errors import CliError
from tenuto.kernel.storage import store as store_module
from tenuto.kernel.storage.store import StoreError

CONTEXT = cast(Any, SimpleNamespace(obj=None))


@pytest.mark.parametrize("command", [stores.try_store, stores.remove])
def test_a_damaged_file_of_declarations_is_told_in_a_sentence(tmp_path: Path, command: Any) -> None:
    file = tmp_path / "stores.yaml"
    file.write_text("a: [")
    with pytest.raises(CliError, match="the stores' declarations cannot be read"):
        command(CONTEXT, "a", file)


def test_a_store_that_cannot_be_read_keeps_nothing_of_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> bytes:
        raise StoreError("it cannot be read.")

    monkeypatch.setattr(store_module, "read_bytes", unreadable)
    place = tmp_path / "checkpoints"
    with pytest.raises(CliError, match="The store cannot be used from here: it cannot be read"):
        stores.create(CONTEXT, "big", path=str(place), file=tmp_path / "stores.yaml")
    assert [path for path in place.rglob("*") if path.is_file()] == []
