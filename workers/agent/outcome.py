"""Outcome of a run, from what its worker told of its end, the traces that it left, and what the agent did to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tenuto.schemas.assignments import Action
from tenuto.schemas.events.run import Cause, WorkersOutcome
from tenuto.workers.agent.reconcile import OUTCOME_OF_LEAVING
from tenuto.workers.agent.runtimes.runtime import Exit
from tenuto.workers.agent.secret_masks import Mask
from tenuto.workers.endings import ERROR_CHARACTERS_MAX, LEFT_IN_ORDER, Ending
from tenuto.workers.launch.gang_errors import ended_by_itself, how_it_ended

OUTCOMES: dict[Cause, WorkersOutcome] = {
    "invalid_hyperparameters": "failed",
    "will_repeat": "failed",
    "followed": "lost",
    "infrastructure": "lost",
    "hung": "lost",
}


@dataclass(frozen=True)
class End:
    outcome: WorkersOutcome
    exit_code: int | None
    error: str | None
    cause: Cause | None = None
    followed: bool = False
    """True: the run ended only because other parts of its gang did."""


def name_end(found: Exit, told: Ending | None, killed_for: Action | None, hide: Mask) -> End:
    """The end of a run. `told`: by its worker, or by the supervisor of its gang; None: nothing, so that an exit code is only a
    number. `hide`: mask of its secrets, applied before texts are shortened."""
    if told in LEFT_IN_ORDER:  # all was saved: a crash in the exit handlers of a library changes nothing
        return End(cast(WorkersOutcome, told), found.own_code if found.out_of_memory else found.code, None)
    if found.out_of_memory:
        return End("failed", found.code, _said(found, hide))
    cause = found.cause if told is None else _cause(told)
    if cause is not None:
        return End(OUTCOMES[cause], found.code, _error_text(found, hide), cause, followed=cause == "followed")
    if told == "killed" or (told is None and found.killed):
        said = _said(found, hide)  # from the supervisor of a gang, about the first rank that failed
        if killed_for is not None:
            return End(OUTCOME_OF_LEAVING[killed_for], found.code, said or _killed_text(killed_for), followed=not said)
        return End("lost", found.code, said or _signal_text(found.code))
    return End("failed", found.code, _error_text(found, hide))


def _cause(told: Ending) -> Cause | None:
    return told if told in OUTCOMES else None


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
    """Error sentence that the harness wrote for the user, else the exit code and the end of standard error."""
    text = "\n".join([f"The worker process {ended_by_itself(found.code)}", *found.last_lines])
    return _said(found, hide) or hide.torn(text, at_end=False)[:ERROR_CHARACTERS_MAX]
