"""Where one trial's checkpoints are, and where their files are put together first."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tenuto.kernel.storage.directory import PARTIAL_PREFIX, DirectoryStore
from tenuto.kernel.storage.opening import open_trial
from tenuto.kernel.storage.store import Store
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.storage import CheckpointStorage, SharedDirectoryStorage

Say = Callable[[str], None]


class Place:
    """`checkpoint_directory` is what the agent said: the trial's directory, used where the storage is a shared directory."""

    def __init__(self, assignment: Assignment, checkpoint_directory: Path, environment: Mapping[str, str] | None = None) -> None:
        """Makes no request. Raises StoreError where a credential is missing."""
        self.storage: CheckpointStorage = assignment.config.checkpoint_storage
        self.environment = os.environ if environment is None else environment
        self.store: Store
        if isinstance(self.storage, SharedDirectoryStorage):
            self.store = DirectoryStore(checkpoint_directory)
        else:
            self.store = open_trial(self.storage, checkpoint_directory, assignment.trial_id, self.environment)

    def staging(self, checkpoint_id: str) -> Path:
        """An empty directory for the checkpoint's files. In a shared directory's own file system, so that they are moved into
        the store and not copied; else on this node's disk, which must have room for one checkpoint. Raises OSError."""
        if isinstance(self.store, DirectoryStore):
            path = self.store.root / f"{PARTIAL_PREFIX}{checkpoint_id}"
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            return path
        return Path(tempfile.mkdtemp(prefix=f"checkpoint-{checkpoint_id}-", dir=self._own_directory()))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory of this process for restored files, gone afterwards."""
        path = Path(tempfile.mkdtemp(prefix="restored-", dir=self._own_directory()))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _own_directory(self) -> Path | None:
        """Beside the run's other files, which the agent cleans up; the usual temporary directory may be in memory."""
        error_file = self.environment.get("TENUTO_ERROR_FILE", "")
        directory = Path(error_file).parent if error_file else None
        return directory if directory is not None and directory.is_dir() else None
