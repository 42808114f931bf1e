"""Credentials of registries: read from a user's secret or the operator's file, and given to the daemon with a pull, never kept.
Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

DOCKER_HUB = "docker.io"
_NAMES_OF_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})
FORMS = '{"username": "...", "password": "..."}, or what `docker login` writes into a config.json'

Credentials = Mapping[str, str]
"""Credentials in the form of Docker's API: username and password, or identitytoken."""


class BadCredentials(ValueError):
    """Unusable credentials; `str(error)` says why, and contains no part of them."""


def registry_of(image: str) -> str:
    """Registry of an image: the part before the first slash if it looks like a host, as Docker reads it."""
    first, slash, _ = image.partition("/")
    host = first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB
    return DOCKER_HUB if host in _NAMES_OF_HUB else host


def credentials_for(image: str, text: str) -> Credentials | None:
    """Credentials for the registry of an image. `text`: a Docker config.json, or one user and password, which are for any
    registry unless `registry` names one. None: there are none for this registry. Raises BadCredentials."""
    try:
        given = json.loads(text)
    except ValueError:
        raise BadCredentials(f"is no JSON: it must be {FORMS}") from None
    if not isinstance(given, Mapping):
        raise BadCredentials(f"must be {FORMS}")
    registry = registry_of(image)
    if "auths" not in given and ("username" in given or "password" in given):
        named = given.get("registry") or given.get("serveraddress")
        return _one(given) if not named or _host(str(named)) == registry else None
    entries = given.get("auths")
    if not isinstance(entries, Mapping):
        raise BadCredentials(f"has neither username and password nor auths: it must be {FORMS}")
    for address in entries:
        if _host(str(address)) == registry:
            if not isinstance(entries[address], Mapping) or not entries[address]:
                raise BadCredentials(f"has no password for {registry}; `docker login` gave that to a program that keeps it")
            return _one(entries[address])
    return None


def _one(entry: Mapping[str, Any]) -> Credentials:
    if entry.get("auth") and not entry.get("password"):
        try:
            name, colon, word = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise BadCredentials("has an `auth` that is not USER:PASSWORD in base64") from None
        entry = {**entry, "username": name, "password": word.rstrip("\0")} if colon else entry
    if entry.get("identitytoken"):
        return {"identitytoken": str(entry["identitytoken"])}
    found = {key: entry.get(key) for key in ("username", "password")}
    if not all(isinstance(value, str) and value for value in found.values()):
        raise BadCredentials(f"has no username and password: it must be {FORMS}")
    return {key: str(value) for key, value in found.items()}


def _host(address: str) -> str:
    """Host and port of an address as `docker login` writes it, such as https://index.docker.io/v1/."""
    host = urlsplit(address if "://" in address else f"//{address}").netloc
    return DOCKER_HUB if host in _NAMES_OF_HUB else host


def without(text: str, credentials: Credentials | None) -> str:
    """A registry's message with the password removed, should it quote it."""
    for name in ("password", "identitytoken"):
        if value := (credentials or {}).get(name):
            text = text.replace(value, "[password]")
    return text
