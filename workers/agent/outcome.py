"""Outcome of a run, from the traces of its worker and what the agent did to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.assignments import Action
from tenuto.schemas.events.run import EXIT_CODE_FOLLOWED, EXIT_CODE_HUNG, EXIT_CODE_INFRASTRUCTURE, WorkersOutcome
from tenuto.workers.agent.reconcile import OUTCOME_OF_LEAVING
from tenuto.workers.agent.runtimes.runtime import Exit
from tenuto.workers.agent.secret_masks import Mask
from tenuto.workers.endings import ERROR_CHARACTERS_MAX, SIGNAL_EXIT_BASE
from tenuto.workers.launch.words import how_it_ended

EXIT_OUTCOMES: dict[int, WorkersOutcome] = {0: "finished", 80: "preempted", 81: "paused"}
"""Outcomes by exit code of the harness; all other codes are failures of the user's code."""


@dataclass(frozen=True)
class End:
    outcome: WorkersOutcome
    exit_code: int | None
    error: str | None
    followed: bool = False
    """True: the run ended only because other parts of its gang did."""


def name_end(found: Exit, killed_for: Action | None, hide: Mask) -> End:
    """The end of a run. `hide`: mask of its secrets, applied before texts are shortened."""
    exit_code = found.code
    if exit_code is not None and exit_code in EXIT_OUTCOMES:
        return End(EXIT_OUTCOMES[exit_code], exit_code, None)
    if found.out_of_memory:
        return End("failed", exit_code, _said(found, hide))
    if exit_code in (EXIT_CODE_FOLLOWED, EXIT_CODE_INFRASTRUCTURE, EXIT_CODE_HUNG):
        return End("lost", exit_code, _error_text(found, hide), followed=exit_code == EXIT_CODE_FOLLOWED)
    if exit_code is None or exit_code > SIGNAL_EXIT_BASE:
        said = _said(found, hide)  # from the supervisor of a gang, about the first rank that failed
        if killed_for is not None:
            return End(OUTCOME_OF_LEAVING[killed_for], exit_code, said or _killed_text(killed_for), followed=not said)
        return End("lost", exit_code, said or _signal_text(exit_code))
    return End("failed", exit_code, _error_text(found, hide))


def _killed_text(action: Action) -> str:
    if action in ("kill", "run"):
        return "the agent killed its processes, as the launcher ordered"
    return f"it did not leave in time after it was told to ({action}), so the agent killed its processes"


def _signal_text(exit_code: int | None) -> str:
    if exit_code is None:
        return "its processes were killed from outside"
    return f"its worker process {how_it_ended(exit_code)}"


def _said(found: Exit, hide: Mask) -> str:
    """Error sentence of the worker, without secrets. Its writer may have shortened it, and knows no secrets."""
    return hide.torn(found.said, at_end=len(found.said) >= ERROR_CHARACTERS_MAX)[:ERROR_CHARACTERS_MAX]


def _error_text(found: Exit, hide: Mask) -> str:
    """Error sentence that the harness wrote for the user, else the end of standard error."""
    text = "\n".join([f"The worker process exited with code {found.code}.", *found.last_lines])
    return _said(found, hide) or hide.torn(text, at_end=False)[:ERROR_CHARACTERS_MAX]
