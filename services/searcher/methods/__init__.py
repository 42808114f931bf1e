"""The search methods. Each is a pure, stateless set of rules; what it has learned is in the `Experiment`.

A method is one or several ladders of lengths (brackets of rungs), a way to make the next trial's hyperparameters, and rules: what
happens to a trial that reached its rung, and which waiting trial takes a free place. Methods without early stopping have one
rung, the full length. What a method has to provide is in `base.py`; each is an entry point of `tenuto.search_methods`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tenuto.kernel import plugins
from tenuto.schemas.config import Hyperparameters, PluginSearcher, Searcher
from tenuto.schemas.events.search import PluginMethod
from tenuto.services.searcher.methods.base import Method, PluginRules, Rules
from tenuto.services.searcher.methods.versions import RULE_VERSION, RULE_VERSIONS_KNOWN
from tenuto.services.searcher.state.space import kept

GROUP = "tenuto.search_methods"


class UnknownRules(Exception):
    """The experiment is searched by rules that this Python does not have. `str(error)` is one sentence for the user."""


def method_for(
    settings: Searcher, space: Hyperparameters, rule_version: int = RULE_VERSION, plugin: PluginMethod | None = None
) -> Method:
    """`plugin`: as recorded when the search started; None for a method of Tenuto, or a search that starts now. Raises
    UnknownRules: deciding by other rules would silently contradict the record."""
    if rule_version not in RULE_VERSIONS_KNOWN:
        raise UnknownRules(
            f"This experiment is searched by rules version {rule_version}, but this searcher knows versions"
            f" {', '.join(map(str, RULE_VERSIONS_KNOWN))} only; run the searcher of the release that started it, or a newer one."
        )
    if not isinstance(settings, PluginSearcher):
        return _own(settings.name)(settings, kept(space), rule_version)
    kind, found = _installed(settings.name, plugin)
    known = kind.VERSIONS or (found.version,)
    rules = known[-1] if plugin is None else plugin.rules
    if plugin is not None and (plugin.package != found.package or rules not in known):
        raise UnknownRules(
            f"This experiment is searched by {settings.name} of {plugin.named}, rules {rules}, but installed here is"
            f" {found.package} {found.version}, which has rules {', '.join(known)}; install {plugin.named} in this Python."
        )
    return kind(settings, kept(space), rule_version, found.package, found.version, rules)


@lru_cache(maxsize=64)
def _own(name: str) -> type[Rules[Any]]:
    """Tenuto's own, whatever other packages declare: their installation must not touch searches that never name them."""
    [found] = [plugin for plugin in plugins.declared(GROUP) if plugin.own and plugin.name == name]
    kind: type[Rules[Any]] = found.entry.load()
    return kind


def _installed(name: str, recorded: PluginMethod | None) -> tuple[type[PluginRules[Any]], plugins.Plugin]:
    """Raises UnknownRules."""
    try:
        found, kind = plugins.find(GROUP, name), plugins.load(GROUP, name)
    except plugins.PluginError as error:
        by = "" if recorded is None else f" of {recorded.named}"
        raise UnknownRules(f"The search method {name}{by} cannot be used here: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, PluginRules)):
        raise UnknownRules(
            f"The search method {name} of {found.package} {found.version} cannot be used: {found.entry.value} is no class derived"
            " from tenuto.services.searcher.methods.base.PluginRules."
        )
    return kind, found


__all__ = ["GROUP", "RULE_VERSION", "RULE_VERSIONS_KNOWN", "Method", "UnknownRules", "method_for"]
