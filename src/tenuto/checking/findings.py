"""One line of what a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "PROBLEM", "not run"]
"""`note`: training works, and something may get in its way. `PROBLEM`: training would fail, or not be exact."""


@dataclass(frozen=True)
class MachineFinding:
    subject: str
    level: Level
    found: str
    """Measured fact, in a few words."""
    advice: str = ""
    """Sentence with what to do. Empty for `ok`."""


def exit_code(findings: list[MachineFinding]) -> int:
    """1 if there is a problem, else 0."""
    return int(any(item.level == "PROBLEM" for item in findings))
