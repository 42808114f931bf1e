"""The part of the command line that one call needs. typer builds each command from its function's signature, and all of them take
longer than most commands run."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import typer

WITH_VALUE = ("--data-dir", "--url")
"""Options before the command whose value is the next word."""


def first_command(words: Sequence[str]) -> str:
    """First word of a command line that is neither an option nor its value. Empty if there is none, or if an option before it
    asks for what concerns all commands, as --help does."""
    words = list(words)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in WITH_VALUE:
            words = words[1:]
        elif not option.startswith(tuple(f"{name}=" for name in WITH_VALUE)):
            return ""
    return words[0] if words else ""


def narrowed(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The app with the one command or group that `words` begin with; all of it where they begin with none of these."""
    wanted = first_command(words)
    found = copy.copy(app)
    found.registered_groups = [item for item in app.registered_groups if item.name == wanted]
    found.registered_commands = [
        item for item in app.registered_commands if (item.name or getattr(item.callback, "__name__", "")) == wanted
    ]
    return found if found.registered_groups or found.registered_commands else app
