"""Subjects that are found by the entry points of `tenuto.doors`: what each declares, and what is refused of it at the start."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import asyncpg
from fastapi.routing import APIRoute

from tenuto.kernel import plugins
from tenuto.kernel.plugins import Plugin, PluginError
from tenuto.kernel.settings import SettingsError
from tenuto.services.gateway.http.context import Door
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.rights.access import PERMISSIONS

GROUP = "tenuto.doors"
PREFIX = "/plug-ins/"
"""Beginning of the addresses of other packages' subjects, before their name: so none takes an address of Tenuto or of another."""
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(kw_only=True)
class PluginDoor(Door):
    """Door of such a subject; it adds what its handlers need."""

    async def forget(self, experiment_id: int) -> None:
        """Removes what is kept of a deleted experiment; repeated without harm."""

    async def clean(self) -> None:
        """Removes what earlier processes left; called once after the start."""


@dataclass(frozen=True)
class DoorPlugin:
    """Declaration of a plug-in of `tenuto.doors`. Its routes are `foreign_routers` of the subject."""

    subject: Subject
    door: Callable[[Door, asyncpg.Pool], PluginDoor] | None = None
    """Function (fields that every door has, connections to the views) -> the door that `door_of` gives its handlers, of a
    class of its own. None: they need no more than `Door`."""


def find_doors(without: frozenset[str] = frozenset(), *, own: bool = False) -> dict[str, DoorPlugin]:
    """Subjects that are installed, by name; `own`: those of Tenuto alone. Raises SettingsError with a sentence about the first
    that cannot be used: a gateway that left it out would not be the one that its operator installed."""
    found = {}
    for plugin in plugins.declared(GROUP):
        if plugin.name not in without and (plugin.own or not own):
            try:
                found[plugin.name] = plugins.load(GROUP, plugin.name)
            except PluginError as error:
                raise SettingsError(str(error)) from None
            if wrong := _problem(plugin, found[plugin.name]):
                raise SettingsError(
                    f"{plugin.name} of {GROUP} (package {plugin.package} {plugin.version}) cannot be used: {wrong}; mend it, or "
                    "uninstall the package."
                )
    return found


def _problem(plugin: Plugin, found: object) -> str:
    if not isinstance(found, DoorPlugin):
        return f"it is a {type(found).__name__}, and must be a DoorPlugin"
    subject = found.subject
    if not NAME.fullmatch(plugin.name):
        return "its name may have small letters, digits and `-`"
    if subject.name != plugin.name:
        return f"its subject is named {subject.name}"
    if not plugin.own and (subject.routers or subject.middleware):
        return "its routes must be foreign_routers, and it may have no middleware, which would see the requests of others"
    return _problem_of_routes(subject, f"/{plugin.name}/" if plugin.own else f"{PREFIX}{plugin.name}/", plugin.own)


def _problem_of_routes(subject: Subject, prefix: str, own: bool) -> str:
    routes = [route for router in subject.foreign_routers for route in router.routes]
    if not all(isinstance(route, APIRoute) for route in routes):
        return "each of its routes must be an APIRoute, such as `@router.get` makes"
    counted = Counter(
        f"{method} {route.path}" for route in routes if isinstance(route, APIRoute) for method in route.methods or ()
    )
    places = {route.partition(" ")[2] for route in counted} | (set() if own else {*subject.pages, *subject.basic_prefixes})
    if outside := sorted(place for place in places if not place.startswith(prefix)):
        return f"{outside[0]} is not below {prefix}, where its addresses must be"
    if twice := sorted(route for route, times in counted.items() if times > 1):
        return f"{twice[0]} is there twice"
    if differing := sorted(counted.keys() ^ subject.permissions.keys()):
        what = "has no rule among its permissions" if differing[0] in counted else "has a rule and is no route"
        return f"{differing[0]} {what}"
    known = {"", *PERMISSIONS}
    unknown = sorted({rule.permission for rule in subject.permissions.values()} - known)
    return f"{unknown[0]} is no permission (there are {', '.join(PERMISSIONS)})" if unknown else ""
