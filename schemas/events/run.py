"""What happened to the processes of an allocation. Owner: launcher. Stream: run/<allocation>."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tenuto.schemas.events.registry import EventData, event

WorkersOutcome = Literal["finished", "preempted", "paused", "failed", "lost"]
"""finished: left because the trial was stopped. preempted: saved and left because its slots are wanted elsewhere (or the
experiment is paused). paused: left because the search paused the trial. failed: the user's code raised or exited non-zero.
lost: killed by a signal, never started, or its agent is gone (infrastructure)."""

EXIT_CODE_INVALID_HYPERPARAMETERS = 82
"""Of a worker whose model code refused its hyperparameters: it failed, but starting it again would change nothing."""
EXIT_CODE_FOLLOWED = 83
"""Of a rank, or of an agent's part of a gang, that ended only because others did."""
EXIT_CODE_INFRASTRUCTURE = 84
"""Of an agent's part of a gang that was ended for no fault of the user's code: a link was cut."""
EXIT_CODE_HUNG = 85
"""Of an agent's part of a gang with a rank that hung: the machine's fault, or the code's."""

EXIT_CODE_WILL_REPEAT = 86
"""Of a worker that failed in a way that would repeat: user code that cannot be imported, a checkpoint that does not fit it."""


class Run(EventData):
    OWNER: ClassVar[str] = "launcher"
    STREAM: ClassVar[str] = "run"

    allocation_id: str
    trial_id: str

    def stream_key(self) -> str:
        return self.allocation_id


@event("WorkersStarting")
class WorkersStarting(Run):
    agent_ids: tuple[str, ...]


@event("WorkersStarted")
class WorkersStarted(Run):
    agent_ids: tuple[str, ...]


@event("WorkersExited")
class WorkersExited(Run):
    outcome: WorkersOutcome
    exit_code: int | None
    """None when it is not known (agent lost)."""
    error: str | None = None
    """The user's error, user's file and line first; or what the infrastructure did."""
    setbacks: int = Field(default=0, exclude_if=lambda value: value == 0)
    """Failures and losses in a row, this one included, with nothing saved or validated between them; counted where a pause
    follows."""
    restart_at_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Set where the trial must not start again before then: RestartPauseEnded follows, unless the trial is over by then."""


@event("RestartPauseEnded")
class RestartPauseEnded(Run):
    """The trial may be granted slots again; the allocation is the one whose end began the pause."""


@event("GangPartReported")
class GangPartReported(Run):
    """What one agent of a gang that spans several said about its part. WorkersStarted or WorkersExited follows when the last
    of them has said it; a part that failed or was lost ends the others."""

    agent_id: str
    step: Literal["started", "exited"]
    outcome: WorkersOutcome | None = None
    exit_code: int | None = None
    error: str | None = None
    followed: bool = Field(default=False, exclude_if=lambda value: not value)
    """It ended only because other parts did: another one's end says why."""


@event("GangRendezvousOpened")
class GangRendezvousOpened(Run):
    """Rank 0's side of a gang that spans several agents listens for the others."""

    agent_id: str
    address: str
    """Where: `host:port`, on a port that the kernel chose."""
