"""Plug-ins: the implementations behind Tenuto's ports, by the entry-point group of each port. Tenuto declares its own in
pyproject.toml like any other package (Python Packaging User Guide, "Entry points specification"), so that no port names what
implements it.

An installed package is code that the machine's owner trusts; nothing of it is imported until something by its name is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tenuto.kernel.optional import EXTRAS

OWN = "tenuto"
GROUPS: Mapping[str, str] = {
    "tenuto.doors": "a subject of the gateway with routes of its own",
    "tenuto.frameworks": "a way to train: what prepares, runs and ends a framework's code in a worker",
    "tenuto.notice_targets": "a service that webhooks send notices to",
    "tenuto.provisioners": "a provider that starts and ends nodes",
    "tenuto.runtimes": "a way in which an agent runs workers",
    "tenuto.search_methods": "a method that chooses trials and decides how long each trains",
    "tenuto.stores": "a kind of checkpoint store",
}
"""Each group and what a plug-in of it is."""


class PluginError(Exception):
    """A plug-in cannot be used. `str(error)` is one sentence for the user."""


@dataclass(frozen=True)
class Plugin:
    """One declared implementation."""

    group: str
    name: str
    package: str
    """Name of the distribution that declares it, as its METADATA gives it; empty where it gives none."""
    version: str
    """Version of that distribution."""
    entry: EntryPoint

    @property
    def own(self) -> bool:
        return self.package == OWN


@cache
def declared(group: str) -> tuple[Plugin, ...]:
    """All plug-ins of `group` that this Python has installed, by name and package; two packages may declare the same name."""
    assert group in GROUPS, group
    found = {
        Plugin(group, entry.name, _text(entry, "name"), _text(entry, "version"), entry) for entry in entry_points(group=group)
    }
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.package)))


def _text(entry: EntryPoint, what: str) -> str:
    distribution = entry.dist
    return "" if distribution is None else str(getattr(distribution, what))


def names(group: str) -> tuple[str, ...]:
    """Names in `group`, sorted."""
    return tuple(sorted({plugin.name for plugin in declared(group)}))


@cache
def find(group: str, name: str) -> Plugin:
    """The plug-in `name`. Raises PluginError if no package declares it, or two do: which one runs must not depend on the order
    of directories. What Tenuto has itself cannot be replaced by another package either."""
    found = [plugin for plugin in declared(group) if plugin.name == name]
    if not found:
        known = ", ".join(names(group)) or "none"
        raise PluginError(
            f"There is no {name} among {group} here (there are: {known}); install the package that has it in this Python."
        )
    if len(found) > 1:
        packages = " and ".join(f"{plugin.package} {plugin.version}".strip() for plugin in found)
        raise PluginError(f"{name} of {group} is declared by {packages}: uninstall all but one of them, or rename one.")
    return found[0]


@cache
def load(group: str, name: str) -> Any:
    """The object that the plug-in `name` declares. Raises PluginError as `find` does, and if it cannot be imported."""
    plugin = find(group, name)
    try:
        return plugin.entry.load()
    except Exception as error:  # a module of another package may raise anything
        raise PluginError(f"{name} of {group} cannot be imported: {_importing(plugin, error)}.") from error


def _importing(plugin: Plugin, error: Exception) -> str:
    missing = error.name or "" if isinstance(error, ImportError) else ""
    extra = next((extra for package, extra in EXTRAS.items() if f"{missing}.".startswith(f"{package}.")), "")
    if plugin.own and extra:
        return f"{error}; install what it needs in this Python: pip install 'tenuto[{extra}]'"
    what = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
    return f"{what} (declared by {plugin.package} {plugin.version} as {plugin.entry.value})"
