"""Log policies: actions for lines that a worker prints and that match a pattern.

Agents match the patterns and serve all users, so no pattern may keep one busy. Patterns are those of RE2, a library that reads a
line once, whatever the pattern; Python's own `re` may take a time exponential in the line's length. Two costs remain and are
bounded: the size of a pattern, and the length of a line, of which only the beginning is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model

LINE_CHARACTERS_MAX = 1_000
"""Number of characters at the beginning of a line that are searched."""
PATTERN_BYTES_MAX = 16 * 1024
"""Most memory of a compiled pattern: a few hundred states, with which a line takes milliseconds at most."""
LOG_POLICIES_MAX = 16


class LogPolicy(Model):
    pattern: str = Field(min_length=1, max_length=500)
    """Regular expression (syntax of RE2), searched anywhere in each line that a worker prints."""
    action: Literal["exclude_agent"]
    """exclude_agent: the trial never runs again on the agent where the line was printed."""


class PatternError(ValueError):
    """A pattern is refused. `str(error)`: the problem, to be read after the name of the field."""


def matcher(pattern: str) -> Any:
    """Compiled pattern, whose `search(text)` looks anywhere in a line. `.*` at the ends changes no result and is removed.
    Raises PatternError."""
    import re2  # here, as only matching and checking of patterns need it; reading a configuration does not

    trimmed = _trimmed(pattern)
    if not trimmed:
        raise PatternError("it would match every line; say what the line must contain")
    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(trimmed, options)
    except (re2.error, UnicodeError) as error:
        why = error.args[0] if error.args else ""
        why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        if "too large" in why or "repetition size" in why:
            raise PatternError("it repeats too much, and agents look for it in every line; shorten it") from error
        raise PatternError(
            f"it is not a regular expression of RE2: {why} (what looks ahead, looks behind or refers back is none there)"
        ) from error


def check_policies(policies: Sequence[LogPolicy]) -> list[tuple[str, str]]:
    """Policies whose pattern cannot be used: (path, sentence) of each."""
    found = []
    for index, policy in enumerate(policies):
        try:
            matcher(policy.pattern)
        except PatternError as error:
            found.append((f"log_policies[{index}].pattern", str(error)))
    return found


def _trimmed(pattern: str) -> str:
    trimmed = pattern
    while trimmed.startswith(".*"):
        trimmed = trimmed[3:] if trimmed.startswith(".*?") else trimmed[2:]
    while trimmed.endswith(".*") and not trimmed.endswith("\\.*"):
        trimmed = trimmed[:-2]
    return trimmed
