"""Messages between launcher and agent: state, not orders. The launcher says what an agent should run; the agent makes it so
and reports what it runs. A lost message is repaired by the next heartbeat."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.environment import AllowedMount
from tenuto.schemas.events.agent import Offer
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.record import KnownData

Action = Literal["run", "preempt", "stop", "pause", "kill"]
"""run: train up to target_length. preempt, pause: save a checkpoint and leave. stop: leave, because the trial is over (a
checkpoint is saved only if the checkpoint policy asks for one). kill: end the processes now."""


EARLIER_CHECKPOINTS_MAX = 3
"""Earlier checkpoints sent for each trial. If this many in a row are damaged, the store itself is at fault, and an operator
has to look."""


class SourceCheckpoint(Model):
    checkpoint_id: str
    location: str
    batches: int
    files_hash: str = ""
    """`files_hash` of the recorded files: the worker loads nothing that differs from it. Empty: not known."""
    weights_only: bool = False
    """True: only the models' weights are loaded, and training begins at batch 0."""
    trusted_user: str = ""
    """Owner of the checkpoint, if not the submitter; the submitter agreed to load that user's pickled state. Empty: the
    submitter."""


class Assignment(Model):
    """The part of one allocation that runs on one agent: everything needed to start its workers, and what they should do now."""

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
    """Slots of the whole gang, in rank order."""
    checkpoint: SourceCheckpoint | None
    """Checkpoint to resume from: the trial's latest one when the workers start. None: the trial starts from nothing."""
    earlier_checkpoints: tuple[SourceCheckpoint, ...] = ()
    """Earlier checkpoints of the trial, newest first. Workers resume from one of them if `checkpoint` is damaged."""
    target_length: int
    action: Action = "run"
    trace: str = ""
    known_data: tuple[KnownData, ...] = ()
    """Fingerprints recorded for the trial's data before; a change is reported and recorded."""
    rendezvous: str = ""
    """`host:port` where rank 0's side of a gang over several agents listens. Empty: not known yet, or not needed."""
    gang_secret: str = ""
    """Secret that the parts of a gang over several agents show each other. It is derived for the allocation each time the
    launcher sends assignments, so neither the record nor the launcher's state contains it."""
    mounts_allowed: tuple[AllowedMount, ...] | None = None
    """Mounts that the agent's pool allows containers, within what the agent's operator allows. None: the pool has no rule."""
    known_environment: str = ""
    """Hash of the environment recorded at the trial's last start; empty at its first start."""


class Assignments(Model):
    """Everything the agent should run. The agent kills whatever it runs that is not listed."""

    position: int
    """Log position at which the launcher decided this. An agent ignores assignments older than those it acted on last."""
    assignments: tuple[Assignment, ...]
    cluster: str = Field(default="", exclude_if=lambda value: not value)
    """Id of the cluster: an agent's directory belongs to one. Empty: the launcher does not say."""
    tokens: dict[str, str] = Field(default_factory=dict)
    """Token of each allocation, which the agent's reports carry. Only launcher and agent know it: workers and the record do
    not."""
    secrets: dict[str, str] = Field(default={}, exclude_if=lambda value: not value)
    """Secret values by reference (`user/name`) that the assignments name. An agent never writes them to disk with an
    assignment."""
    stores: str = Field(default="", repr=False, exclude_if=lambda value: not value)
    """Declarations of the stores that the assignments name, with their credentials, as JSON; an agent keeps them in memory only.
    Empty: they name no store of the operator's."""


class AssignReply(Model):
    """Reply of the agent: the assignments are on its disk."""

    accepted: bool
    reason: str = ""


class Heartbeat(Offer):
    agent_id: str
    spool_id: str
    allocations: tuple[str, ...]
    """Allocations whose workers the agent has: starting, running, or exited with a report that is not committed yet."""
    launcher_sequence: int = 0
    """Sequence number of the last report in the spool's launcher lane when this heartbeat was made. A heartbeat that a newer
    report has overtaken proves nothing about allocations that it does not list."""
    backlog: dict[str, int] = {}
    """Number of uncommitted reports on the agent's disk by lane; lanes without any are absent."""
    gone: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: the agent ends now; this is its last heartbeat."""
    repeated: bool = False
    """True: the agent was too busy to make a new heartbeat and sent its last one again. The agent is alive, but the other
    fields may be out of date."""


class HeartbeatReply(Model):
    lease_seconds: float
    assignments: Assignments | None
    """None: the launcher is still reading the log, or cannot record yet that the agent is gone; the agent asks again."""
    error: str = ""
