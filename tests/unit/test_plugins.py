"""What is declared behind the ports: found by name, loaded when needed, and what is wrong with it told in one sentence."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tenuto.kernel import plugins
from tenuto.kernel.plugins import GROUPS, Plugin, PluginError

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]


def test_each_group_is_declared_and_explained() -> None:
    assert DECLARED.keys() == GROUPS.keys()
    page = (ROOT / "docs/plug-ins.md").read_text()
    assert [group for group in GROUPS if f"`{group}`" not in page] == []


def test_what_tenuto_declares_is_installed() -> None:
    """Else this checkout was installed before the declaration changed: `make install`."""
    for group, entries in DECLARED.items():
        own = {plugin.name: plugin.entry.value for plugin in plugins.declared(group) if plugin.own}
        assert own == entries, group


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, entries in DECLARED.items() for name in entries])
def test_each_of_tenutos_own_can_be_loaded(group: str, name: str) -> None:
    assert plugins.load(group, name) is not None


def _declare(monkeypatch: pytest.MonkeyPatch, *found: tuple[str, str, str]) -> None:
    made = tuple(
        Plugin("tenuto.stores", name, package, "1.0", EntryPoint(name, value, "tenuto.stores")) for name, package, value in found
    )
    monkeypatch.setattr(plugins, "declared", lambda group: made)
    for cached in (plugins.find, plugins.load):
        monkeypatch.setattr(plugins, cached.__name__, cached.__wrapped__)


def test_one_that_is_not_there_is_told_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(monkeypatch, ("tape", "tapes", "tapes:Store"), ("disk", "disks", "disks:Store"))
    with pytest.raises(PluginError, match=r"There is no drum among tenuto\.stores here \(there are: disk, tape\)"):
        plugins.load("tenuto.stores", "drum")


def test_a_name_that_two_packages_declare_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(monkeypatch, ("s3", "other", "json:loads"), ("s3", "tenuto", "json:dumps"))
    with pytest.raises(PluginError, match=r"declared by other 1\.0 and tenuto 1\.0"):
        plugins.load("tenuto.stores", "s3")


@pytest.mark.parametrize("value", ["no_such_module_anywhere:Store", "json:NoSuchName"])
def test_one_that_cannot_be_imported_is_told_with_its_package(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(monkeypatch, ("tape", "tapes", value))
    with pytest.raises(PluginError, match=r"cannot be imported: .* \(declared by tapes 1\.0 as "):
        plugins.load("tenuto.stores", "tape")


def test_one_whose_module_raises_is_told_with_its_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torn_tape.py").write_text("raise RuntimeError('the tape is torn')")
    monkeypatch.syspath_prepend(tmp_path)
    _declare(monkeypatch, ("tape", "tapes", "torn_tape:Store"))
    with pytest.raises(PluginError, match=r"cannot be imported: RuntimeError: the tape is torn \(declared by tapes 1\.0 as "):
        plugins.load("tenuto.stores", "tape")
