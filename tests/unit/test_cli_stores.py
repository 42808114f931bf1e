"""Declaring stores on the command line: each mistake is one sentence, and a trial of a store leaves nothing in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.cli import stores
from tenuto.cli.errors import CliError
from tenuto.kernel.storage import store as store_module
from tenuto.kernel.storage.definitions import DEFINITIONS
from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import Stores, read_stores
from tests.support.example_plugins import importable

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


def _refusal(file: Path, **options: Any) -> str:
    with pytest.raises(CliError) as caught:
        stores.create(CONTEXT, "big", file=file, test=False, **options)
    return str(caught.value)


def test_a_kind_that_no_package_has_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    said = _refusal(tmp_path / "stores.yaml", kind="tape")
    assert said.startswith("--type: there is no tape among tenuto.stores here (there are: azure, directory, gcs, s3)")
    assert not (tmp_path / "stores.yaml").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["bucket"], "--set: 'bucket' has no value; write --set KEY=VALUE."),
        (["bucket=a", "bucket=b"], "--set bucket: it is given twice."),
        (["type=gcs"], "--set type: it is given twice."),
        (
            ["secret_key=x"],
            "--set secret_key: it is a credential, and others see the words of a command; set",
        ),
        (["colour=red", "bucket=abc"], "--set colour is not for a store of type s3."),
        ([], "--bucket is needed for a store of type s3."),
        (["bucket=abc"], "AWS_SECRET_ACCESS_KEY is not set in this shell"),
    ],
)
def test_wrong_settings_are_told_in_a_sentence(
    settings: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    if said.startswith("AWS_"):
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert _refusal(tmp_path / "stores.yaml", kind="s3", settings=settings).startswith(said)


def test_a_plugins_kind_is_declared_kept_and_used(tmp_path: Path, example_plugins: Path) -> None:
    """Also where the package is missing: the declaration stays as it is, and other stores can be used."""
    file, place = tmp_path / "stores.yaml", tmp_path / "checkpoints.db"
    with importable(example_plugins):
        stores.create(CONTEXT, "archive", kind="sqlite", settings=[f"file={place}"], file=file)
        assert _refusal(file, kind="sqlite") == "--set file is needed for a store of type sqlite."
        assert read_stores(file)["archive"].url == f"sqlite://{place}"
    written = file.read_text()
    assert written == f"archive:\n  type: sqlite\n  file: {place}\n"
    stores.create(CONTEXT, "big", path=str(tmp_path / "directory"), file=file)
    assert file.read_text().startswith(written)
    known = Stores(file=file)
    assert Stores.given_by(known.handed_out(["archive"])).definitions() == {"archive": known.definitions()["archive"]}
    with pytest.raises(StoreError, match=r"There is no sqlite among tenuto\.stores here \(there are: .*install the package"):
        known.open("archive")
    with importable(example_plugins):
        Stores.given_by(known.handed_out(["archive"])).open("archive").put_bytes("a", b"1")


def test_credentials_of_a_kind_that_is_not_here_are_not_shown() -> None:
    text = repr(DEFINITIONS.validate_python({"a": {"type": "tape", "password": "xyzzy"}}))
    assert "tape" in text
    assert "xyzzy" not in text
