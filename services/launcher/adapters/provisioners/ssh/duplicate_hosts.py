"""Hosts that a list has twice: one machine by two addresses, or two of one name with a common home directory. Each would show the
other's node as its own, and the launcher would end both as the second of one name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

IDENTITY_CHARACTERS_MAX = 64


def identity_in(said: Mapping[str, object]) -> str:
    """Identity of the directory for agents that an answer comes from; empty if it says none."""
    found = said.get("identity")
    return found if isinstance(found, str) and len(found) <= IDENTITY_CHARACTERS_MAX else ""


def twins_of(names: Iterable[str], identities: Mapping[str, str]) -> dict[str, str]:
    """Hosts that are one before them in the list, with the name of that one."""
    first: dict[str, str] = {}
    found = {}
    for name in names:
        identity = identities.get(name, "")
        if identity and first.setdefault(identity, name) != name:
            found[name] = first[identity]
    return found


def words_of(first: str) -> str:
    return (
        f"It has one directory for agents with host {first} before it in the list, so no node begins there: take it out of the"
        " list if it is the same machine, else give it another `directory`."
    )
