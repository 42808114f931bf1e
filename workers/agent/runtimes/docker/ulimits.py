"""Resource limits (ulimit) of the processes of containers, from the agent's settings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable

NAMES = frozenset(
    {
        "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio", "rttime",
        "sigpending", "stack",
    }
)  # fmt: skip
"""Limits that Docker knows, with the names of /etc/security/limits.conf."""
_ENTRY = re.compile(r"(?P<name>[a-z]+)=(?P<soft>-1|unlimited|[0-9]{1,18})(?::(?P<hard>-1|unlimited|[0-9]{1,18}))?")


@dataclass(frozen=True)
class Ulimit:
    name: str
    soft: int
    """-1: none."""
    hard: int

    def described(self) -> dict[str, object]:
        """Description of the limit for Docker's API."""
        return {"Name": self.name, "Soft": self.soft, "Hard": self.hard}


def read_ulimits(text: str) -> tuple[Ulimit, ...]:
    """The setting TENUTO_DOCKER_ULIMITS. Raises RuntimeUnavailable."""
    found: dict[str, Ulimit] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(item)
        if match is None or match["name"] not in NAMES or match["name"] in found:
            raise RuntimeUnavailable(
                f"TENUTO_DOCKER_ULIMITS has {item!r}, but each entry must be NAME=LIMIT or NAME=SOFT:HARD, such as nofile=65536 "
                f"or memlock=-1 (no limit), once for each of {', '.join(sorted(NAMES))}."
            )
        soft = _number(match["soft"])
        hard = _number(match["hard"] or match["soft"])
        if hard != -1 and (soft == -1 or soft > hard):
            raise RuntimeUnavailable(f"TENUTO_DOCKER_ULIMITS has {item!r}, but the soft limit must not be above the hard one.")
        found[match["name"]] = Ulimit(match["name"], soft, hard)
    return tuple(found.values())


def _number(text: str) -> int:
    return -1 if text == "unlimited" else int(text)
