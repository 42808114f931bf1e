"""Directories of checkpoints that a container sees: its own trial's, to write, and those that it may start from, to read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from tenuto.kernel.account import Account, hand_over
from tenuto.kernel.storage import confined_paths
from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import Stores, located
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.ids import experiment_of
from tenuto.workers.agent.runtimes.docker.mounts import Bind


def checkpoint_binds(stores: Stores, assignment: Assignment, account: Account | None) -> list[Bind]:
    """Makes the trial's own directory where its store is one. Other stores are reached over the network. Trials of other agents
    may write into such a store, so nothing is made or mounted by a link in it. Raises OSError."""
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
        root = None if definition is None else definition.directory
        if root is None:
            continue
        parts = (str(experiment_of(trial_id)), trial_id)
        if writable:
            _make(root, parts)
            if account is not None:
                hand_over(root, account, parts)
        if _is_there(root, parts):
            path = str(root.joinpath(*parts))
            binds.append(Bind(path, path, writable))
    return binds


def _make(root: Path, parts: Sequence[str]) -> None:
    """Raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    for depth, part in enumerate(parts):
        with confined_paths.directory(root, parts[:depth]) as descriptor, contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=descriptor)


def _is_there(root: Path, parts: Sequence[str]) -> bool:
    """False also where a link is in the place of one of these directories."""
    with contextlib.suppress(OSError), confined_paths.directory(root, parts):
        return True
    return False
