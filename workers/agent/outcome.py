"""How a run's end is named, from its exit code and what the agent did to it. Pure but for reading the run's files."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.assignments import Action
from tenuto.schemas.events.run import EXIT_CODE_FOLLOWED, EXIT_CODE_HUNG, EXIT_CODE_INFRASTRUCTURE, WorkersOutcome
from tenuto.schemas.text import storable
from tenuto.workers.agent.foreign import open_foreign, read_foreign
from tenuto.workers.agent.processes import RunFiles
from tenuto.workers.agent.reconcile import OUTCOME_OF_LEAVING
from tenuto.workers.endings import ERROR_CHARACTERS_MAX, SIGNAL_EXIT_BASE, STDERR_BYTES_READ, STDERR_LINES_SHOWN
from tenuto.workers.launch.words import how_it_ended

EXIT_OUTCOMES: dict[int, WorkersOutcome] = {0: "finished", 80: "preempted", 81: "paused"}
"""The harness's exit codes; all others are failures of the user's code."""


@dataclass(frozen=True)
class End:
    outcome: WorkersOutcome
    exit_code: int | None
    error: str | None
    followed: bool = False
    """It ended only because other parts of its gang did."""


def name_end(exit_code: int | None, killed_for: Action | None, files: RunFiles) -> End:
    if exit_code is not None and exit_code in EXIT_OUTCOMES:
        return End(EXIT_OUTCOMES[exit_code], exit_code, None)
    if exit_code in (EXIT_CODE_FOLLOWED, EXIT_CODE_INFRASTRUCTURE, EXIT_CODE_HUNG):
        return End("lost", exit_code, _error_text(exit_code, files), followed=exit_code == EXIT_CODE_FOLLOWED)
    if exit_code is None or exit_code > SIGNAL_EXIT_BASE:
        said = _said(files)  # by the supervisor of a gang, about the first of its ranks that failed
        if killed_for is not None:
            return End(OUTCOME_OF_LEAVING[killed_for], exit_code, said or _killed_text(killed_for), followed=not said)
        return End("lost", exit_code, said or _signal_text(exit_code))
    return End("failed", exit_code, _error_text(exit_code, files))


def _killed_text(action: Action) -> str:
    if action in ("kill", "run"):
        return "the agent killed its processes, as it was told"
    return f"it had not left in time after it was told to ({action}), so the agent killed its processes"


def _signal_text(exit_code: int | None) -> str:
    if exit_code is None:
        return "its processes were killed from outside"
    return f"its worker process {how_it_ended(exit_code)}"


def _said(files: RunFiles) -> str:
    try:
        return read_foreign(files.error, files.owner).strip()[:ERROR_CHARACTERS_MAX]
    except OSError:
        return ""


def _error_text(exit_code: int, files: RunFiles) -> str:
    """What the harness wrote for the user, else the end of standard error."""
    text = _said(files)
    if text:
        return text
    try:
        with open_foreign(files.stderr, files.owner) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - STDERR_BYTES_READ))
            lines = storable(file.read().decode(errors="replace")).splitlines()[-STDERR_LINES_SHOWN:]
    except OSError:
        lines = []
    head = f"The worker process exited with code {exit_code}."
    return "\n".join([head, *lines])[:ERROR_CHARACTERS_MAX]
