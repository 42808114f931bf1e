"""Directories of checkpoints that a container sees: its own trial's, to write, and those that it may start from, to read."""

from __future__ import annotations

from pathlib import Path

from tenuto.kernel.account import Account, hand_over
from tenuto.kernel.storage.definitions import DirectoryDefinition
from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import Stores, located
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.ids import experiment_of
from tenuto.workers.agent.runtimes.docker.mounts import Bind


def checkpoint_binds(stores: Stores, assignment: Assignment, account: Account | None) -> list[Bind]:
    """Makes the trial's own directory where its store is one. Other stores are reached over the network. Raises OSError."""
    own = assignment.config.checkpoint_storage.store
    wanted = {(own, assignment.trial_id): True}
    for checkpoint in (assignment.checkpoint, *assignment.earlier_checkpoints):
        if checkpoint is not None:
            try:
                found = located(checkpoint.location)
            except StoreError:  # the worker says what is wrong with it
                continue
            wanted.setdefault((found.store or own, found.trial_id), False)
    try:
        definitions = stores.definitions()
    except StoreError as error:
        raise OSError(str(error)) from error
    binds = []
    for (name, trial_id), writable in wanted.items():
        definition = definitions.get(name)
        if not isinstance(definition, DirectoryDefinition):
            continue
        path = Path(definition.path) / str(experiment_of(trial_id)) / trial_id
        if writable:
            path.mkdir(parents=True, exist_ok=True)
            if account is not None:
                hand_over(path, account)
        if path.is_dir():
            binds.append(Bind(str(path), str(path), writable))
    return binds
