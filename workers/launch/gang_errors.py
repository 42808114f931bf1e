"""Sentences for the user about a gang's end: one, about the rank that failed first."""

from __future__ import annotations

import signal
import sys

from tenuto.workers.endings import ERROR_CHARACTERS_MAX, SIGNAL_EXIT_BASE, STDERR_BYTES_READ, STDERR_LINES_SHOWN
from tenuto.workers.launch.layout import GangPart
from tenuto.workers.launch.ranks import rank_directory


def say(text: str) -> None:
    """Prints a line in the trial's log."""
    print(f"tenuto: {text}", file=sys.stderr, flush=True)


def who(part: GangPart, rank: int) -> str:
    return f"rank {rank} of {part.world_size} on agent {part.agent_of(rank)}"


def how_it_ended(code: int) -> str:
    """`code`: of a death by a signal, 128 plus its number."""
    number = code - SIGNAL_EXIT_BASE
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "unknown"
    hint = "; often the kernel, for lack of memory" if number == signal.SIGKILL else ""
    return f"died by signal {number} ({name}{hint})"


def ended_by_itself(code: int | None) -> str:
    """The rest of a sentence about a process that told nothing of its end: its exit code is only a number."""
    return (
        f"exited with code {code}, and told nothing of its end. If its code ends the process (os._exit, or a library that does): "
        "raise an exception to fail, return to be done."
    )


def first_failure(part: GangPart, rank: int, code: int, *, killed: bool) -> str:
    """The error text. `killed`: the rank died by a signal. Its first line names the rank and the reason; the user's own file and
    line come first if they are known."""
    directory = rank_directory(part.directory, rank)
    try:
        text = (directory / "error.txt").read_text(errors="replace").strip()
    except OSError:
        text = ""
    if text:
        headline, _, rest = text.partition("\n")
        return f"{headline} ({who(part, rank)} failed first)\n{rest}".rstrip()[:ERROR_CHARACTERS_MAX]
    if killed:
        return f"{who(part, rank)} {how_it_ended(code)}"
    sentence = f"{who(part, rank)} {ended_by_itself(code)}"
    try:
        with (directory / "stderr").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - STDERR_BYTES_READ))
            lines = file.read().decode(errors="replace").splitlines()[-STDERR_LINES_SHOWN:]
    except OSError:
        lines = []
    return "\n".join([sentence, *lines])[:ERROR_CHARACTERS_MAX]
