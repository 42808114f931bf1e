"""Errors that repeat themselves: the same one at the same place, twice in a row with no progress between, is not tried again.
Pure.

A trial is repeated exactly from its last checkpoint, so what fails alike twice fails always. Not so what time or another machine
may heal: networks, full disks, faults of a GPU. What a user's `log_policies` blame on an agent is not the code's either."""

from __future__ import annotations

import re

from tenuto.schemas.events.run import WorkersExited

SIGNATURE_CHARACTERS_MAX = 300
"""Most characters that are compared: a place, a type and the beginning of a message."""
HEAD_CHARACTERS_MAX = 200
"""Most characters of an error's first line before the reason why it is the last: lists show the beginning of a line. A longer one
follows whole."""
FAULTS = {132: "SIGILL", 134: "SIGABRT", 136: "SIGFPE", 139: "SIGSEGV"}
"""Exit codes of deaths by signals that code sends to itself. SIGKILL and SIGTERM come from outside, and SIGBUS where shared
memory is short."""
ABORTED = 134
_PLACE = re.compile(r"^[^\s:]+:\d+: ")
_RANK = re.compile(r"(^rank \d+ of \d+ on agent \S+ )|( \(rank \d+ of \d+ on agent \S+ failed first\))$")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?", re.IGNORECASE)
"""Parts of a message that differ from run to run: addresses, process ids, free memory, temporary names."""
_HEALS_IN_TIME = re.compile(
    r"timed? ?out|timeout|connect|disconnect|broken ?pipe|URLError|HTTPError|gaierror|SSLError|IncompleteRead|RemoteProtocolError"
    r"|temporar|unavailable|too many (?:requests|open files)|rate limit|no space left|quota exceeded|stale file handle"
    r"|input/output error|all that the node had left",
    re.IGNORECASE,
)
"""Errors of networks, of storage and of a full node."""
_HEALS_ELSEWHERE = re.compile(
    r"\bECC\b|NVLink|\bNCCL\b|fallen off the bus|devices? (?:is|are|\(s\) is/are) busy|no CUDA-capable device|hardware",
    re.IGNORECASE,
)
"""Errors of a GPU or its links."""


def signature(exited: WorkersExited, agents: tuple[str, ...]) -> str:
    """Signature to compare with the previous end's: place, type and message of an error. Empty: the end proves nothing about the
    code."""
    if exited.outcome == "lost":
        # A gang's libraries abort its processes when the network fails.
        fault = FAULTS.get(exited.exit_code or 0)
        return f"signal {fault}" if fault and exited.cause is None and (exited.exit_code != ABORTED or len(agents) == 1) else ""
    if exited.outcome != "failed" or exited.cause is not None:
        return ""
    head = _RANK.sub("", (exited.error or "").partition("\n")[0])[:SIGNATURE_CHARACTERS_MAX]
    if _HEALS_IN_TIME.search(head):
        return ""
    place = match.group() if (match := _PLACE.match(head)) else ""
    return f"{exited.exit_code} {place}{_VARYING.sub('#', head[len(place) :])}"


def proves(found: str, before: str, agents: tuple[str, ...], agents_before: tuple[str, ...]) -> bool:
    """True if two ends in a row show that a third would be like them."""
    if not found or found != before:
        return False
    return not _HEALS_ELSEWHERE.search(found) or not set(agents) & set(agents_before)


def told(error: str) -> str:
    """The error with the reason why it is the last, in the first line, which lists show."""
    head, _, rest = error.partition("\n")
    reason = "the same error twice without progress, so the trial is not started again"
    if len(head) > HEAD_CHARACTERS_MAX:
        return f"{head[:HEAD_CHARACTERS_MAX]}... ({reason})\n\n{error}"
    return f"{head} ({reason})\n{rest}".rstrip()
