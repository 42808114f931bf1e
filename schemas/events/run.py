"""Events about the processes of an allocation. Owner: launcher. Stream: run/<allocation>."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.registry import EventData, event

WorkersOutcome = Literal["finished", "preempted", "paused", "failed", "lost"]
"""finished: the workers left because the trial was stopped. preempted: they saved and left because their slots are wanted
elsewhere (or the experiment is paused). paused: they left because the search paused the trial. failed: the user's code raised
or exited non-zero. lost: they were killed by a signal, never started, or their agent is gone (infrastructure)."""

Cause = Literal["invalid_hyperparameters", "will_repeat", "followed", "infrastructure", "hung"]
"""Cause of an end that our harness, the supervisor of a gang or the agent itself knows; no exit code of the user's program says
it.

invalid_hyperparameters: model code refused its hyperparameters, which a restart would not change. will_repeat: a failure that
every start would meet: user code that cannot be imported, or a checkpoint that does not fit it. followed: a rank, or an agent's
part of a gang, ended only because others did. infrastructure: an agent's part of a gang ended through no fault of the user's
code: a link was cut. hung: a rank hung; machine or code may be the cause."""

EXIT_CODE_INVALID_HYPERPARAMETERS = 82
EXIT_CODE_FOLLOWED = 83
EXIT_CODE_INFRASTRUCTURE = 84
EXIT_CODE_HUNG = 85
EXIT_CODE_WILL_REPEAT = 86
"""Exit codes of our own processes that end for these causes. They are for people to read: nothing is concluded from them."""


class RunEvent(EventData):
    OWNER: ClassVar[str] = "launcher"
    STREAM: ClassVar[str] = "run"

    allocation_id: str
    trial_id: str

    def stream_key(self) -> str:
        return self.allocation_id


@event("WorkersStarting")
class WorkersStarting(RunEvent):
    agent_ids: tuple[str, ...]


@event("WorkersStarted")
class WorkersStarted(RunEvent):
    agent_ids: tuple[str, ...]


class WorkersExit(Model):
    """Common fields of WorkersExited and the agent's report of it."""

    outcome: WorkersOutcome
    exit_code: int | None
    """Exit code of the workers. None: not known (agent lost)."""
    error: str | None = None
    """Error of the user's code, with the user's file and line first; or a description of what failed in the infrastructure."""


@event("WorkersExited")
class WorkersExited(WorkersExit, RunEvent):
    VERSION: ClassVar[int] = 2

    cause: Cause | None = Field(default=None, exclude_if=lambda value: value is None)
    """None: the workers left in order, an error of the user's code, or an end from outside."""
    setbacks: int = Field(default=0, exclude_if=lambda value: value == 0)
    """Number of ends in a row, this one included, with nothing new saved or validated between them: those without a request, or
    those that the scheduler or the search requested. Recorded only if a pause follows."""
    restart_at_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Earliest restart of the trial, in microseconds since 1970; RestartPauseEnded follows, unless the trial is over by then.
    None: no pause."""


@event("RestartPauseEnded")
class RestartPauseEnded(RunEvent):
    """The trial may be granted slots again. The allocation is the one whose end began the pause."""


@event("GangPartReported")
class GangPartReported(RunEvent):
    """Report of one agent about its part of a gang that spans several agents. WorkersStarted or WorkersExited follows when the
    last part has reported; a part that failed or was lost ends the others."""

    VERSION: ClassVar[int] = 2

    agent_id: str
    step: Literal["started", "exited"]
    outcome: WorkersOutcome | None = None
    exit_code: int | None = None
    error: str | None = None
    followed: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: this part ended only because others did; the report of another part has the cause."""
    cause: Cause | None = Field(default=None, exclude_if=lambda value: value is None)
    """Same as `cause` of WorkersExited."""


class Rendezvous(Model):
    """Common fields of GangRendezvousOpened and the agent's report of it."""

    agent_id: str
    address: str
    """`host:port`; the operating system chose the port."""


@event("GangRendezvousOpened")
class GangRendezvousOpened(Rendezvous, RunEvent):
    """Rank 0's side of a gang that spans several agents is listening for the others."""
