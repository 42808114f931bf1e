"""Packages that need not be there: who may import them at once, and what is said where they are missing."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from tenuto.cli.errors import CliError
from tenuto.cli.picture import draw
from tenuto.cli.plugins import _problem as problem
from tenuto.kernel import plugins
from tenuto.kernel.optional import EXTRAS, USED_BY, NotInstalled, needed
from tenuto.kernel.plugins import PluginError
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.services.gateway.notices.adapters.targets.opening import plugin_of
from tenuto.services.gateway.people.adapters.sso_visits import from_settings
from tests.support.absent_packages import forget_target
from tests.support.import_graph import ROOT, imported_at_once, modules

DEPENDENCIES_MAX = 30
"""Most packages of a plain install that pyproject.toml names. One that only some installations use has an extra."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _of_plugins() -> dict[str, tuple[str, ...]]:
    """Module of each plug-in that has an extra of its name, and the packages of that extra."""
    return {
        value.partition(":")[0]: packages
        for declared in PROJECT["entry-points"].values()
        for name, value in declared.items()
        if (packages := tuple(package for package, extra in EXTRAS.items() if extra == name))
    }


ALLOWED = {**USED_BY, **_of_plugins()}


def _part_of(module: str) -> str:
    """The part of ALLOWED that the module belongs to; empty where it belongs to none."""
    return next((part for part in ALLOWED if f"{module}.".startswith(f"{part}.")), "")


def test_without_them_the_rest_can_be_imported() -> None:
    wrong = []
    for name, path in modules().items():
        part = _part_of(name)
        for imported in imported_at_once(ast.parse(path.read_text())):
            package = imported.split(".")[0]
            if package in EXTRAS and package not in ALLOWED.get(part, ()):
                wrong.append(f"{name} imports {package}: import it where it is used, or see kernel/optional.py")
            other, public = _part_of(imported), name.count(".") == 1
            if other and not part and not public and _imports_at_once(imported):
                wrong.append(f"{name} imports {imported}, which imports {', '.join(ALLOWED[other])}")
    assert wrong == []


def _imports_at_once(module: str) -> bool:
    """True if the module, or a package that contains it, imports an optional package at once."""
    known, parts = modules(), module.split(".")
    paths = [known[name] for count in range(2, len(parts) + 1) if (name := ".".join(parts[:count])) in known]
    trees = [ast.parse(path.read_text()) for path in paths]
    return any(name.split(".")[0] in EXTRAS for tree in trees for name in imported_at_once(tree))


def test_what_is_imported_at_once_is_found() -> None:
    lines = [
        "import a",
        "if TYPE_CHECKING:",
        "    import b",
        "try:",
        "    from c import d",
        "except ImportError:",
        "    import e",
    ]
    assert set(imported_at_once(ast.parse("\n".join([*lines, "def f():", "    import g"])))) == {"a", "c", "c.d"}


def test_each_comes_with_an_extra_that_there_is() -> None:
    extras = PROJECT["optional-dependencies"]
    for package, extra in EXTRAS.items():
        distributions = [item.split(">")[0].replace("-", "_") for item in extras[extra]]
        assert any(item.startswith(package.split(".")[0]) for item in distributions), package


def test_who_lacks_one_is_told_how_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotInstalled, match=r"matplotlib cannot be imported .*; install it: pip install 'tenuto\[pictures\]'$"):
        needed("matplotlib")


def test_a_plain_install_needs_few_packages() -> None:
    assert len(PROJECT["dependencies"]) <= DEPENDENCIES_MAX


@pytest.mark.parametrize(
    ("kind", "package"), [("slack", "slack_sdk"), ("email", "aiosmtplib"), ("pagerduty", "pagerduty"), ("pagerduty", "httpx2")]
)
def test_a_target_of_notices_without_its_package_says_how_it_comes(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    forget_target(monkeypatch, kind, package)
    with pytest.raises(PluginError, match=r"install what it needs in this Python: pip install 'tenuto\[notices\]'\.$"):
        plugin_of(kind)
    assert "pip install 'tenuto[notices]'" in problem(plugins.find("tenuto.notice_targets", kind))


def test_sign_in_at_a_provider_without_its_package_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "authlib", None)
    settings = Settings(oidc_issuer="https://id.example.com", oidc_client_id="tenuto")
    with pytest.raises(SettingsError, match=r"sign-in needs a package: .* pip install 'tenuto\[sso\]'\.$"):
        from_settings(settings)


def test_a_picture_of_slots_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CliError, match=r"A picture needs a package: .* pip install 'tenuto\[pictures\]'\.$"):
        draw([], Path("slots.png"), "")
