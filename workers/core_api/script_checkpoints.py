"""A script's checkpoint as it sees it, and the files that Tenuto adds to the script's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from tenuto.workers.checkpoints.exactness import add_breaks
from tenuto.workers.checkpoints.files import RECORD_FILE, CheckpointRecord, UnusableCheckpoint
from tenuto.workers.checkpoints.writer import Fill
from tenuto.workers.core_api.links import link_tree
from tenuto.workers.core_api.session import Session, say
from tenuto.workers.errors import UserError, mark_repeating, repeats_in_loading

METADATA_FILE = "tenuto_metadata.json"
"""File in each checkpoint of a script with the `metadata` that the script gave."""


@dataclass(frozen=True)
class Checkpoint:
    """A stored checkpoint of the trial: type of `run.checkpoint.latest`."""

    id: str
    """Id of the checkpoint, by which the command line and the client know it."""
    steps: int
    """Steps trained when the checkpoint was saved."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Values that the script gave to `save`; empty if it gave none."""
    location: str = ""
    """Address in its store; empty: not known."""
    weights_only: bool = False
    """True: this is `searcher.source_checkpoint`, of another trial: this trial begins with its weights, at step 0."""


@dataclass(frozen=True)
class AddedFiles:
    """Files beside those of the script."""

    record: CheckpointRecord
    metadata: str
    """Metadata that the script gave, as JSON."""
    breaks: tuple[str, ...]

    def write(self, directory: Path) -> None:
        """Raises OSError."""
        (directory / RECORD_FILE).write_bytes(self.record.to_json() + b"\n")
        (directory / METADATA_FILE).write_text(self.metadata + "\n")
        add_breaks(directory, list(self.breaks))


def record_of(session: Session, steps: int, length: int, validation: dict[str, float] | None) -> CheckpointRecord:
    assignment = session.assignment
    return CheckpointRecord(
        experiment_id=assignment.experiment_id,
        trial_id=assignment.trial_id,
        batches=steps,
        length=length,
        unit=assignment.config.searcher.max_length.unit,
        hyperparameters=assignment.hyperparameters,
        trial_seed=assignment.trial_seed,
        context_hash=assignment.context_hash,
        validation=validation,
    )


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """Raises UserError for values that JSON does not have."""
    try:
        return json.dumps(dict(metadata), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"a checkpoint's metadata must be JSON: {error}; save other values as files.") from None


class States(Protocol):
    """`tenuto.workers.pytorch.script_states.ScriptStates`."""

    def size_bytes(self, values: Mapping[str, Any]) -> int: ...
    def snapshot(self, values: Mapping[str, Any]) -> Fill: ...
    def copied(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], Callable[[], None], Callable[[], None]]: ...
    def write(self, values: Mapping[str, Any], directory: Path) -> None: ...
    def load(self, directory: Path) -> dict[str, Any]: ...


def open_states(method: str) -> States:
    """Imports torch, which not every script has. Raises UserError if there is none."""
    try:
        states: States = import_module("tenuto.workers.pytorch.script_states").ScriptStates()
    except ModuleNotFoundError as error:
        raise UserError(
            f"run.checkpoint.{method} needs torch, and there is no module {error.name}; write files in run.checkpoint.save."
        ) from error
    return states


@dataclass(frozen=True)
class GivenState:
    """State that a script has given to be saved."""

    batches: int
    states: States
    values: Mapping[str, Any]
    has_snapshots = True

    def snapshot_bytes(self) -> int:
        return self.states.size_bytes(self.values)


@dataclass(frozen=True)
class ScriptState(GivenState):
    """State with the files of a checkpoint around it."""

    added: AddedFiles

    def snapshot(self) -> Fill:
        """Copies it; returns a function that writes the copy into a directory, once."""
        write = self.states.snapshot(self.values)

        def fill(directory: Path) -> None:
            write(directory)
            self.added.write(directory)

        return fill

    def write(self, directory: Path) -> None:
        """Writes it as it is now. Raises OSError, UserError."""
        self.states.write(self.values, directory)
        self.added.write(directory)


class Beside:
    """Files of one checkpoint that are written from a copy, after the script's block has ended."""

    def __init__(self) -> None:
        self._unwritten: list[Callable[[], None]] = []
        self._releases: list[Callable[[], None]] = []

    def add(self, given: GivenState, write: Callable[[Mapping[str, Any]], None]) -> None:
        """Copies the state; `write` is called with the copy later, in another thread, until it raises no OSError."""
        copy, wait, release = given.states.copied(given.values)
        self._releases.append(release)
        self._unwritten += [wait, lambda: write(copy)]

    def fill(self, filling: Path, into: Path) -> None:
        """Writes what is missing in the script's directory, and links all of it into the checkpoint's. Raises OSError."""
        while self._unwritten:
            self._unwritten[0]()
            self._unwritten.pop(0)
        link_tree(filling, into)

    def release(self) -> None:
        for release in self._releases:
            release()


def loaded_state(directory: Path) -> dict[str, Any]:
    """State in a checkpoint's files. Raises UserError if there is none."""
    try:
        return open_states("load_state").load(directory)
    except FileNotFoundError as error:
        raise UserError(
            "run.checkpoint.load_state: this checkpoint was not saved by run.checkpoint.save_state; read its files in "
            "`with run.checkpoint.restore() as directory`."
        ) from error


@contextmanager
def judged(checkpoint: Checkpoint, loads: Callable[[], int]) -> Iterator[None]:
    """Context of the script's loading: an error of its code would repeat at each start. `loads`: number of times that the script
    was seen to have loaded what it restores."""
    before = loads()
    try:
        yield
    except Exception as error:
        if loads() == before and repeats_in_loading(error):
            mark_repeating(error, f"Checkpoint {checkpoint.id} cannot be loaded, and a restart would not help.")
        raise


def new_id(session: Session, steps: int, taken: Collection[str]) -> str:
    """Id of a new checkpoint. One position may be saved twice: at the end of an epoch, and again where the trial leaves."""
    base = f"{session.assignment.allocation_id}-{steps}"
    number = 1
    while (checkpoint_id := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return checkpoint_id


def read_added(directory: Path, checkpoint_id: str) -> tuple[CheckpointRecord, dict[str, Any]]:
    """Record and metadata in a checkpoint's files. Raises UnusableCheckpoint."""
    try:
        record = CheckpointRecord.from_json((directory / RECORD_FILE).read_bytes())
        file = directory / METADATA_FILE
        return record, json.loads(file.read_text()) if file.exists() else {}
    except (OSError, ValidationError, ValueError) as error:
        raise UnusableCheckpoint(f"checkpoint {checkpoint_id} cannot be read: {error}") from error


def give_up(session: Session, steps: int, error: OSError) -> None:
    """Says that a checkpoint could not be written. Raises UserError where the trial leaves: its training would be lost."""
    reason = f"the checkpoint at step {steps} could not be written ({error})"
    if session.leaves:
        raise UserError(f"{reason}; free or repair that storage.") from error
    say(f"{reason}; training goes on without it, free or repair that storage")
