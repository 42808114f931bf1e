"""Readers of settings: text that an admin gave for a pool, checked before it reaches a command line or a file's path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

SHOWN_MAX = 100
"""Most characters of a wrong value that a message shows."""
Reader = Callable[[str, str], Any]
"""Value of a setting, from its name and its text. Raises BadSetting."""


class BadSetting(ValueError):
    """`str(error)` is one sentence for the user."""


def matching(pattern: str, allowed: str) -> Callable[[str, str], str]:
    whole = re.compile(pattern)

    def read(name: str, text: str) -> str:
        if not whole.fullmatch(text):
            raise BadSetting(f"Setting {name} must be {allowed} (found {text[:SHOWN_MAX]!r}).")
        return text

    return read


def number(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text[:12]) <= most):
            raise BadSetting(f"Setting {name} must be a whole number from {least} to {most} (found {text[:SHOWN_MAX]!r}).")
        return int(text)

    return read


def truth(name: str, text: str) -> bool:
    return matching("true|false", "true or false")(name, text) == "true"


def path(name: str, text: str) -> str:
    """Absolute, without what a shell, or Slurm in the names of files (%), would read as something else."""
    found = matching(r"/[A-Za-z0-9._/@+,=-]{1,500}", "an absolute path of letters, digits and ._/@+,=-")(name, text)
    if ".." in found.split("/"):
        raise BadSetting(f"Setting {name} must be a path without `..` (found {text[:SHOWN_MAX]!r}).")
    return found


def file_name(name: str, text: str) -> str:
    """Name of a file with a secret, or with something else that is not recorded. A wrong one is not shown: it may be what belongs
    into the file, such as a web token."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", text) or text.startswith("eyJ"):
        raise BadSetting(f"Setting {name} must be the name of a file in the launcher's directory of secrets, without a path.")
    return text


def read(kind: str, known: Mapping[str, Reader], given: Mapping[str, str], required: Mapping[str, str]) -> dict[str, Any]:
    """Values of the settings that are not empty. `required`: settings that may not be left out, with an example each. Raises
    BadSetting."""
    for name in given:
        if name not in known:
            raise BadSetting(
                f"Setting {name} is unknown to the provisioner {kind}, whose settings are: {', '.join(sorted(known))}."
            )
    for name, example in required.items():
        if not given.get(name, "").strip():
            raise BadSetting(f"Setting {name} is required: give it, such as {example}.")
    return {name: known[name](name, text.strip()) for name, text in given.items() if text.strip()}
