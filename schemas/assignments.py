"""The conversation between launcher and agent: state, not orders. The launcher says what an agent should run; the agent makes
it so and says what it runs. A lost message is repaired by the next heartbeat."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.agent import AUXILIARY_TRIALS_MAX, Slot
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.record import KnownData

Action = Literal["run", "preempt", "stop", "pause", "kill"]
"""run: train up to target_length. preempt, pause: save a checkpoint and leave. stop: leave, the trial is over (save only
what the checkpoint policy asks for). kill: end the processes now."""


EARLIER_CHECKPOINTS_MAX = 3
"""Of each trial. When so many in a row are damaged, the store is, and a person should look."""


class SourceCheckpoint(Model):
    checkpoint_id: str
    location: str
    batches: int
    files_hash: str = ""
    """`files_hash` of the recorded files: what is loaded must be what was recorded. Empty: not known."""
    weights_only: bool = False
    """Only the models' weights count: training begins at batch 0."""
    trusted_user: str = ""
    """Somebody else whose trial saved it, and whose pickled state the submitter agreed to load."""


class Assignment(Model):
    """One allocation's part on one agent: all that is needed to start its workers, and what they should do now."""

    allocation_id: str
    trial_id: str
    trial_number: int
    experiment_id: int
    config: ExperimentConfig
    context_hash: str
    hyperparameters: dict[str, Any]
    trial_seed: int
    experiment_seed: int
    slots: tuple[AgentSlots, ...]
    """The whole gang, in rank order."""
    checkpoint: SourceCheckpoint | None
    """Where to resume from: the trial's latest checkpoint when the workers start."""
    earlier_checkpoints: tuple[SourceCheckpoint, ...] = ()
    """Of the same trial, newest first: where to resume from if that one is damaged."""
    target_length: int
    action: Action = "run"
    trace: str = ""
    known_data: tuple[KnownData, ...] = ()
    """What was recorded of the trial's data before: a change is said and recorded."""
    rendezvous: str = ""
    """Of a gang over several agents: where rank 0's side listens, `host:port`. Empty: not known yet, or not needed."""
    gang_secret: str = ""
    """Of a gang over several agents: what its parts show each other. Derived for the allocation whenever the launcher says what
    is assigned, so that neither the record nor the launcher's state has it."""
    known_environment: str = ""
    """Hash of the environment that the trial's last start recorded; empty at its first."""


class Assignments(Model):
    """Everything the agent should have. What is not listed is not its own (any more) and must be killed."""

    position: int
    """Log position that this was decided at; an agent ignores one older than the last it acted on."""
    assignments: tuple[Assignment, ...]
    tokens: dict[str, str] = Field(default_factory=dict)
    """What the agent's reports carry, by allocation. Launcher and agent alone have them: neither workers nor the record do."""
    secrets: dict[str, str] = Field(default={}, exclude_if=lambda value: not value)
    """Values by reference (`user/name`), of what the assignments name. Never on an agent's disk as part of an assignment."""


class AssignReply(Model):
    """The agent has written the assignments to its disk."""

    accepted: bool
    reason: str = ""


class Heartbeat(Model):
    agent_id: str
    spool_id: str
    pool: str
    host: str
    version: str
    slots: tuple[Slot, ...]
    allocations: tuple[str, ...]
    """Allocations whose workers it has: starting, running, or exited with the report not yet committed."""
    labels: tuple[str, ...] = ()
    """Each `key=value`, sorted."""
    auxiliary_trials_max: int = Field(default=AUXILIARY_TRIALS_MAX, ge=0)
    """Trials without slots that it runs at once."""
    launcher_sequence: int = 0
    """Last report in the spool's launcher lane when this was made: a heartbeat that is older than a report that overtook it
    proves nothing about the allocations it does not list."""
    backlog: dict[str, int] = {}
    """Reports on the agent's disk that are not committed, of each lane that has some."""
    repeated: bool = False
    """Sent again because the agent is too busy to make a new one: it is alive, and the rest may be old."""


class HeartbeatReply(Model):
    lease_seconds: float
    assignments: Assignments | None
    """None: the launcher is still reading the log; try again at the next heartbeat."""
    error: str = ""
