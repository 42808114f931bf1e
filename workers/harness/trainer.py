"""What the training loop needs from a framework, and what a framework is told about its trial."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tenuto.schemas.assignments import Assignment
from tenuto.workers.harness.errors import UserError
from tenuto.workers.harness.gang import Gang


@dataclass(frozen=True)
class TrialInfo:
    """The facts of one trial that user code and trainers may rely on. Equal for every allocation of the trial."""

    experiment_id: int
    trial_id: str
    trial_number: int
    trial_seed: int
    hyperparameters: Mapping[str, Any]
    config: Mapping[str, Any]
    """The experiment configuration as plain data."""
    slots: int = 1
    """Slots of the gang."""
    local_slots: int = 1
    """Slots of this process: one where it is a rank of several."""
    gang: Gang | None = field(default=None, compare=False, repr=False)
    """This process's place among the ranks; None: it trains alone."""

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

    Promise: the state after `batches` batches depends on nothing but the trial (seed, hyperparameters, code, data):
    not on how often it was interrupted, saved or validated on the way.
    """

    batches: int = 0
    """Batches trained so far."""
    step_batches: int = 1
    """Batches that a step trains together. The last step of an epoch, and that before a position given to `train`, may have
    fewer."""
    last_step_batches: int = 1
    """Those of the last step."""
    has_batch_rules: bool = False
    """It knows what the configuration says of global batch size, learning rate and batch normalization on several slots."""

    @property
    @abstractmethod
    def epoch_batches(self) -> int | None:
        """Batches of one epoch. None: not known (a stream), so nothing can be counted in epochs."""

    @abstractmethod
    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        """Train up to `until_batches`, or to the end of the batch in which `interrupted()` became true."""

    @abstractmethod
    def take_metrics(self) -> dict[str, float]:
        """Training metrics over the batches since the last call; empty where none were trained. What was not taken when the
        trainer is saved is part of the checkpoint."""

    @abstractmethod
    def validate(self) -> dict[str, float]: ...

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write all that `load` needs into the empty `directory`. Raises OSError where the disk does not take it."""

    def snapshot(self) -> Callable[[Path], None]:
        """Copies the state, and returns what writes the copy into an empty directory: once, from any thread, while training
        goes on. The function raises OSError where the disk does not take it.

        This one copies nothing, so training must wait for what it returns (`has_snapshots`).
        """
        return self.save

    has_snapshots: bool = False
    """`snapshot` makes a copy."""

    def collect(self) -> None:  # noqa: B027 - a trainer without ranks has nothing to collect
        """Called on all ranks before rank 0 saves: brings together what the checkpoint needs of the others. At a position where
        that was done already it does nothing."""

    def saved(self, checkpoint_id: str) -> None:  # noqa: B027 - a trainer need not care
        """Called in the training thread when a checkpoint of this trainer is stored and reported."""

    @abstractmethod
    def load(self, directory: Path) -> None: ...

    def load_weights(self, directory: Path) -> None:
        """Take over only the weights of another trial's checkpoint. Raises UserError where they do not fit."""
        raise UserError("searcher.source_checkpoint is for PyTorch and Keras trials; load the weights in your own code instead.")

    @abstractmethod
    def close(self) -> None:
        """Stop helper processes. Safe to call at any time, and twice."""


class TrialBase(ABC):
    """Every Trial API's base class: how the harness, which knows no framework, finds the trainer."""

    @classmethod
    @abstractmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        """Build the user's trial and its trainer, at batch 0."""


def trainer_named(name: str, trial_class: type[TrialBase], info: TrialInfo) -> Trainer:
    """Build it by the trainer class `module:Class`. By name: a trainer imports the class that users derive their trial from, so
    that class cannot import the trainer."""
    module, _, kind = name.partition(":")
    trainer: Trainer = getattr(import_module(module), kind)(trial_class, info)
    return trainer
