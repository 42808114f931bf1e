"""Location of one trial's checkpoints, and of the directories in which their files are put together."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tenuto.kernel.storage.directory import PARTIAL_PREFIX, DirectoryStore
from tenuto.kernel.storage.store import Store
from tenuto.kernel.storage.stores import Stores, located
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.ids import location_of

Say = Callable[[str], None]


class Place:
    """Location of one trial's checkpoints. `checkpoint_directory` comes from the agent: the trial's directory, used if the
    experiment names the store `shared`."""

    def __init__(
        self,
        assignment: Assignment,
        checkpoint_directory: Path,
        stores: Stores | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Makes no request. Raises StoreError if the store is not declared."""
        self._name, self._trial_id = assignment.config.checkpoint_storage.store, assignment.trial_id
        self._stores = stores or Stores()
        self.environment = os.environ if environment is None else environment
        self.store: Store
        if self._name == SHARED_STORE:
            self.store = DirectoryStore(checkpoint_directory)
        else:
            self.store = self._stores.open_trial(self._name, self._trial_id)

    def location_of(self, checkpoint_id: str) -> str:
        """Recorded location of one of this trial's own checkpoints."""
        return location_of(self._name, self._trial_id, checkpoint_id)

    def open_location(self, location: str) -> tuple[Store, str]:
        """Store and id of a recorded checkpoint, of this trial or of another. Raises StoreError."""
        found = located(location)
        if found.trial_id == self._trial_id and found.store in (self._name, None):
            return self.store, found.checkpoint_id
        return self._stores.open_location(location, self._name)

    def staging(self, checkpoint_id: str) -> Path:
        """An empty directory for the checkpoint's files. It is in the file system of a shared directory, so that files are
        moved into the store and not copied; otherwise on this node's disk, which must have room for one checkpoint. Raises
        OSError."""
        if isinstance(self.store, DirectoryStore):
            path = self.store.root / f"{PARTIAL_PREFIX}{checkpoint_id}"
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            return path
        return Path(tempfile.mkdtemp(prefix=f"checkpoint-{checkpoint_id}-", dir=self._own_directory()))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory of this process for restored files, removed afterwards."""
        path = Path(tempfile.mkdtemp(prefix="restored-", dir=self._own_directory()))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _own_directory(self) -> Path | None:
        """Directory beside the run's other files, which the agent cleans up; the usual temporary directory may be in memory."""
        error_file = self.environment.get("TENUTO_ERROR_FILE", "")
        directory = Path(error_file).parent if error_file else None
        return directory if directory is not None and directory.is_dir() else None
