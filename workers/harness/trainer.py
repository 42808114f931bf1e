"""The protocol between the training loop and a framework, and the facts about a trial that a framework gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tenuto.schemas.assignments import Assignment
from tenuto.workers.errors import UserError
from tenuto.workers.launch.gang import Gang


@dataclass(frozen=True)
class TrialInfo:
    """Facts of one trial that user code and trainers may rely on. Equal for every allocation of the trial."""

    experiment_id: int
    trial_id: str
    trial_number: int
    trial_seed: int
    hyperparameters: Mapping[str, Any]
    config: Mapping[str, Any]
    """Experiment configuration as plain data."""
    slots: int = 1
    """Number of slots of the gang."""
    local_slots: int = 1
    """Slots of this process: one if it is a rank of several."""
    gang: Gang | None = field(default=None, compare=False, repr=False)
    """Place of this process among the ranks. None: it trains alone."""

    @classmethod
    def of(cls, assignment: Assignment, gang: Gang | None = None) -> TrialInfo:
        slots = sum(len(part.slot_ids) for part in assignment.slots) or 1
        return cls(
            experiment_id=assignment.experiment_id,
            trial_id=assignment.trial_id,
            trial_number=assignment.trial_number,
            trial_seed=assignment.trial_seed,
            hyperparameters=assignment.hyperparameters,
            config=assignment.config.model_dump(mode="json"),
            slots=slots,
            local_slots=slots if gang is None else 1,
            gang=gang,
        )


class Trainer(ABC):
    """One trial in training. Positions are counted in batches since the trial began, over all its allocations.

    Promise: the state after `batches` batches depends on nothing but the trial (seed, hyperparameters, code, data): not on how
    often it was interrupted, saved or validated before.
    """

    batches: int = 0
    """Batches trained so far."""
    step_batches: int = 1
    """Batches that one step trains together. The last step of an epoch, and that before a position given to `train`, may have
    fewer."""
    last_step_batches: int = 1
    """Batches of the last step."""
    has_batch_rules: bool = False
    """True: the trainer applies the configuration of global batch size, learning rate and batch normalization on several
    slots."""

    @property
    @abstractmethod
    def epoch_batches(self) -> int | None:
        """Batches of one epoch. None: not known (a stream), so lengths cannot be counted in epochs."""

    @property
    def stop_requested(self) -> str | None:
        """Reason for which the user's code asked its context to end the training here. None: it did not."""
        return getattr(getattr(self, "context", None), "_stop_requested", None)

    def check_length(self, full_batches: int) -> None:  # noqa: B027 - a trainer need not care
        """Called before training with the full length of the trial. Raises UserError if it cannot be trained so."""

    @abstractmethod
    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        """Trains up to `until_batches`, or to the end of the batch in which `interrupted()` became true."""

    @abstractmethod
    def take_metrics(self) -> dict[str, float]:
        """Training metrics over the batches since the last call; empty if none were trained. Metrics that were not taken when
        the trainer is saved are part of the checkpoint."""

    @abstractmethod
    def validate(self) -> dict[str, float]: ...

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Writes everything that `load` needs into the empty `directory`. Raises OSError if the disk does not accept it."""

    def snapshot(self) -> Callable[[Path], None]:
        """Copies the state, and returns a function that writes the copy into an empty directory: once, from any thread, while
        training goes on. The function raises OSError if the disk does not accept it.

        This default copies nothing, so training must wait for the returned function (`has_snapshots`).
        """
        return self.save

    has_snapshots: bool = False
    """True: `snapshot` makes a copy."""

    copies_on_disk: bool = False
    """True: what `snapshot` copies goes to this machine's disk, which has room for few checkpoints."""

    def snapshot_bytes(self) -> int:
        """Host memory that the next copy needs beyond what is kept for it, in bytes. 0: none, or not known."""
        return 0

    def collect(self) -> None:  # noqa: B027 - a trainer without ranks has nothing to collect
        """Collects what the checkpoint needs of the other ranks; called on all ranks before rank 0 saves. A second call at the
        same position does nothing."""

    def saved(self, checkpoint_id: str) -> None:  # noqa: B027 - a trainer need not care
        """Called in the training thread when a checkpoint of this trainer is stored and reported."""

    @abstractmethod
    def load(self, directory: Path) -> None: ...

    def load_weights(self, directory: Path) -> None:
        """Loads only the weights of another trial's checkpoint. Raises UserError if they do not fit."""
        raise UserError("searcher.source_checkpoint is not for this framework; load the weights in your own code instead.")

    @abstractmethod
    def close(self) -> None:
        """Stops helper processes. Safe to call at any time, and twice."""


class TrialBase(ABC):
    """Base class of every Trial API: through it the harness, which knows no framework, finds the trainer."""

    @classmethod
    @abstractmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        """Builds the user's trial and its trainer, at batch 0."""


def trainer_named(name: str, trial_class: type[TrialBase], info: TrialInfo) -> Trainer:
    """Builds a trial by the trainer class `module:Class`. It is given by name because a trainer imports the class that users
    derive their trial from, so that class cannot import the trainer."""
    module, _, kind = name.partition(":")
    trainer: Trainer = getattr(import_module(module), kind)(trial_class, info)
    return trainer
