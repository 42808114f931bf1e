"""Limits of a trial's restarts: the number and kind of ends of its workers after which it is given up. Pure.

No allocation turns over without bound, whatever ends it. Errors of the user's code count against `max_restarts`. All else is
free as long as the trial gets on; ends in a row that brought nothing new (no checkpoint behind the last, no validation) are
bounded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenuto.schemas.events.run import WorkersExited, WorkersOutcome
from tenuto.services.tracker.policies import repeated_errors

DEATHS_MAX = 5
"""Most restarts after deaths in a row without progress: workers that died by a signal, or a rank that hung. Code that dies each
time (out of memory) must not restart for ever. A larger `max_restarts` of the user takes precedence."""
FRUITLESS_MAX = 100
"""Most ends of any kind in a row without progress. An agent that is gone, a network that is down or a pool in which others
always come first is no fault of the user and ends by itself, so a trial outlasts a night of it: with the pauses between restarts
(at most five minutes) that is more than eight hours. A trial that saves something new whenever it is preempted is never given up
by this."""
_REMEDIES: dict[WorkersOutcome, str] = {
    "preempted": "Others took its slots before it came to its next checkpoint: give it a more urgent resources.priority, or a "
    "shorter min_checkpoint_period.",
    "paused": "It was paused before it came to its next checkpoint: give it a shorter min_checkpoint_period.",
    "lost": "Look at its agents and their network (`tenuto agent ls`), then `tenuto exp continue`.",
}
"""Advice for the user on ends without progress, by their kind."""


@dataclass(frozen=True)
class Ends:
    """Ends of a trial's workers."""

    failures: int = 0
    """Number of ends by errors of the user's code."""
    fruitless: int = 0
    """Number of ends of any kind in a row, with nothing new saved or validated between them."""
    deaths: int = 0
    """Number of `fruitless` in which processes died by a signal or hung: the user's code may be the cause."""
    signature: str = ""
    """Signature of the last error that tells about the code (`repeated_errors.signature`). "": none since progress."""
    agents: tuple[str, ...] = ()
    """Agents of that error."""
    repeats: bool = False
    """True: that error came twice in a row, with no progress between."""


def after(ends: Ends, exited: WorkersExited, *, advanced: bool, agents: tuple[str, ...] = (), blamed: bool = False) -> Ends:
    """State of the ends after another one. `advanced`: the workers had saved a checkpoint behind the last, or validated.
    `agents`: those that they ran on. `blamed`: a log policy blames the agent. The end itself counts if it was not requested."""
    if advanced:
        ends = replace(ends, fruitless=0, deaths=0, signature="", agents=())
    failed, lost = exited.outcome == "failed", exited.outcome == "lost"
    found = "" if blamed else repeated_errors.signature(exited, agents)
    repeats = repeated_errors.proves(found, ends.signature, agents, ends.agents)
    if found or failed:  # another error is none of the same in a row; a loss or a preemption between says nothing
        ends = replace(ends, signature=found, agents=agents)
    return replace(
        ends,
        repeats=repeats,
        failures=ends.failures + failed,
        fruitless=ends.fruitless + (failed or lost or not advanced),
        deaths=ends.deaths + (lost and _may_be_the_codes(exited)),
    )


def _may_be_the_codes(exited: WorkersExited) -> bool:
    """False for losses that no code of the user's can be to blame for: an agent is gone, a link was cut."""
    return exited.exit_code is not None and exited.cause not in ("followed", "infrastructure")


def verdict(ends: Ends, exited: WorkersExited, max_restarts: int) -> str | None:
    """Error of a trial that is given up after this end, which `ends` includes; None: it may start again."""
    if exited.outcome == "failed":
        if ends.failures > max_restarts or exited.cause in ("invalid_hyperparameters", "will_repeat"):
            return error_of(exited)
        return repeated_errors.told(error_of(exited)) if ends.repeats else None
    if ends.repeats:
        return repeated_errors.told(f"the trial's workers were lost: {exited.error or 'they died by a signal'}")
    dies = exited.outcome == "lost" and ends.deaths > max(DEATHS_MAX, max_restarts)
    if not dies and ends.fruitless <= max(FRUITLESS_MAX, max_restarts):
        return None
    how = "were lost" if exited.outcome == "lost" else "ended"
    cause = exited.error or ("its processes were killed or its agent went away" if exited.outcome == "lost" else exited.outcome)
    if not dies:
        cause = cause.removesuffix(".")  # often a sentence already
    remedy = (
        "Look for what kills them, such as too little memory."
        if dies
        else _REMEDIES.get(exited.outcome, "See its log (`tenuto trial logs`).")
    )
    return (
        f"the trial's workers {how} {ends.fruitless} times in a row without a new checkpoint or a validation between; "
        f"the last time: {cause}. {remedy}"
    )


def error_of(exited: WorkersExited) -> str:
    return exited.error or f"the worker exited with code {exited.exit_code}"
