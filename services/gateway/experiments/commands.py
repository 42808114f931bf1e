"""Commands about experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.automation import Rule
from tenuto.schemas.events.request import Description
from tenuto.schemas.events.unmanaged import UnmanagedState
from tenuto.schemas.operations import Operation
from tenuto.schemas.record import ConfigLayer, Origin, Parent
from tenuto.services.gateway.rights.commands import GatewayCommand, UserCommand


@dataclass(frozen=True, kw_only=True)
class SubmitExperiment(UserCommand):
    config: ExperimentConfig
    seed: int
    """The configured seed, or the one drawn for this submission."""
    context_hash: str
    context_size_bytes: int
    trace: str = ""
    origin: Origin | None = None
    parent: Parent | None = None
    layers: tuple[ConfigLayer, ...] = ()
    """Layers that were merged under the configuration that was sent."""
    sent_hash: str = ""
    """SHA-256 of its text. Empty: it was made from another experiment's."""
    stored_bytes: int | None = None
    """Bytes of the kept checkpoints of its workspace, as the views say. None: not counted."""


@dataclass(frozen=True, kw_only=True)
class PauseExperiment(UserCommand):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class ResumeExperiment(UserCommand):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class CancelExperiment(UserCommand):
    experiment_id: int
    kill: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeExperiment(UserCommand):
    """Fields that are "keep" stay as they are."""

    experiment_id: int
    priority: int | Literal["keep"] = "keep"
    weight: float | Literal["keep"] = "keep"
    max_slots: int | Literal["keep"] | None = "keep"
    max_wall_hours: float | Literal["keep"] | None = "keep"
    pool: str = ""
    """Empty: it stays where it is."""
    max_trials: int | None = None
    max_concurrent_trials: int | None = None
    """None: they stay as they are."""


@dataclass(frozen=True, kw_only=True)
class _OfRecord(UserCommand):
    """Common fields of commands about an experiment that may have ended, whose submitter the state no longer has."""

    experiment_id: int
    submitter: str
    """User who submitted it, as the views say."""
    workspace: str
    """Workspace that it is in, as the views say."""


@dataclass(frozen=True, kw_only=True)
class DescribeExperiment(_OfRecord):
    """Changes the fields that `description` names; the others stay as they are."""

    description: Description


@dataclass(frozen=True, kw_only=True)
class ArchiveExperiment(_OfRecord):
    """Only one that has ended."""


@dataclass(frozen=True, kw_only=True)
class UnarchiveExperiment(_OfRecord):
    pass


@dataclass(frozen=True, kw_only=True)
class DeleteExperiment(_OfRecord):
    """Only one that has ended."""

    grace_us: int
    """Time in which it can be taken back."""


@dataclass(frozen=True, kw_only=True)
class KeepExperiment(_OfRecord):
    """Takes back the request for a deletion that was not carried out yet."""


@dataclass(frozen=True, kw_only=True)
class CarryOutDeletion(GatewayCommand):
    """A deletion is due: the gateway itself tells."""

    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class EndOverdue(GatewayCommand):
    """An experiment has run for as long as it may: the gateway itself tells."""

    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class NoteStorage(GatewayCommand):
    """Notes the stored bytes of a workspace's checkpoints; the gateway itself sends it."""

    workspace: str
    stored_bytes: int


@dataclass(frozen=True, kw_only=True)
class MoveExperiment(UserCommand):
    """Moves an experiment to just ahead of or just behind another one, whose priority it takes over."""

    experiment_id: int
    other_id: int
    behind: bool = False


@dataclass(frozen=True, kw_only=True)
class RequestOperations(UserCommand):
    """Decisions of a user's own searcher on one event."""

    experiment_id: int
    searcher: str
    """Class that decided, such as `my_search.py:MySearch`."""
    cause_id: UUID
    cause_position: int
    """The event that it decided on."""
    operations: tuple[Operation, ...]


@dataclass(frozen=True, kw_only=True)
class PutIntoProject(_OfRecord):
    """Another project of its workspace."""

    project: str
    """Empty: none."""


@dataclass(frozen=True, kw_only=True)
class SetWorkspaceRules(UserCommand):
    workspace: str
    rules: tuple[Rule, ...]
    """Rules that replace the present ones. Empty: none."""


@dataclass(frozen=True, kw_only=True)
class CreateUnmanagedExperiment(UserCommand):
    name: str
    or_existing: bool = False
    """True: an experiment that has the name is as good."""


@dataclass(frozen=True, kw_only=True)
class StartUnmanagedTrial(UserCommand):
    experiment_id: int
    name: str
    started_us: int


@dataclass(frozen=True, kw_only=True)
class ChangeUnmanagedTrial(UserCommand):
    experiment_id: int
    trial_id: str
    state: UnmanagedState
    ended_us: int | None
    deleted: bool


ExperimentCommand = PauseExperiment | ResumeExperiment | CancelExperiment | ChangeExperiment | MoveExperiment | RequestOperations
RecordCommand = DescribeExperiment | ArchiveExperiment | UnarchiveExperiment | PutIntoProject | DeleteExperiment | KeepExperiment
