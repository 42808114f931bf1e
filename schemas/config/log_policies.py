"""What follows when a line that a worker prints matches a pattern.

Patterns are matched by the agents, which serve everybody, so one pattern must not keep them busy: `search` in a line of L
characters may take time in L^n, where n is the number of repetitions without end. So their number is bounded, they may repeat
only single characters (which rules out exponential time), and only the beginning of a line is looked at.
"""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tenuto.schemas.base import Model

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_parse  # the parser of `re`; the standard library offers no other way to look at a pattern

LINE_CHARACTERS_MAX = 1_000
"""So much of a line is looked at."""
REPETITIONS_MAX = 2
"""Repetitions without end, or of more than REPEATED_MAX, in one pattern; those at its ends do not count."""
REPEATED_MAX = 16
LOG_POLICIES_MAX = 16


def matcher(pattern: str) -> re.Pattern[str]:
    """Searches anywhere in a line. What `.*` at the ends would add is nothing, so it is left away. Raises re.error."""
    return re.compile(_trimmed(pattern))


def _trimmed(pattern: str) -> str:
    trimmed = pattern
    while trimmed.startswith(".*"):
        trimmed = trimmed[3:] if trimmed.startswith(".*?") else trimmed[2:]
    while trimmed.endswith(".*") and not trimmed.endswith("\\.*"):
        trimmed = trimmed[:-2]
    return trimmed


def _checked(pattern: str) -> str:
    try:
        matcher(pattern)
        parsed = sre_parse.parse(_trimmed(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it is not a regular expression: {error}") from error
    if not _trimmed(pattern):
        raise ValueError("it would match every line; say what the line must contain")
    count = _repetitions(parsed)
    if count > REPETITIONS_MAX:
        raise ValueError(
            f"it repeats without end {count} times, and at most {REPETITIONS_MAX} are allowed beside those at its ends, because "
            "agents look for it in every line; shorten it"
        )
    return pattern


def _repetitions(parsed: Any) -> int:
    """Raises ValueError for a repetition of more than a single character."""
    total = 0
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, most, body = argument
            single = len(body) == 1 and str(body[0][0]) in ("LITERAL", "NOT_LITERAL", "ANY", "IN")
            if int(most) > 1 and not single:
                raise ValueError("it repeats a group, which may take very long; repeat single characters, such as `[a-z]+`")
            total += int(most) > REPEATED_MAX
            total += _repetitions(body)
        elif name == "BRANCH":
            total += sum(_repetitions(branch) for branch in argument[1])
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):
            total += _repetitions(argument if name == "ATOMIC_GROUP" else argument[-1])
        elif name.startswith("GROUPREF"):
            raise ValueError("it refers back to a group, which may take very long")
    return total


class LogPolicy(Model):
    pattern: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_checked)]
    """A regular expression of Python, looked for anywhere in each line that a worker prints."""
    action: Literal["exclude_agent"]
    """exclude_agent: the trial never runs again on the agent where the line was printed."""
