"""`core_context.checkpoint`: saves and restores."""

from __future__ import annotations

import enum
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenuto.workers.core_api.run import Run
from tenuto.workers.core_api.session import Session
from tenuto.workers.errors import UserError


class DownloadMode(enum.Enum):
    """Determined's choice of ranks that download the files. Here every rank has them, whatever is given."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    def __init__(self, session: Session, run: Run) -> None:
        self._session, self._run = session, run

    @contextmanager
    def store_path(self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False) -> Iterator[tuple[Path, str]]:
        """A directory for files, and the id that they are stored under when the block has ended. `metadata` needs
        `steps_completed`. Raises UserError."""
        steps = self._steps(metadata)
        with self._run.checkpoint.save(steps, dict(metadata or {}), shard=shard) as directory:
            yield directory, self._run.checkpoint._filling_id

    def upload(
        self,
        ckpt_dir: str | Path | None,
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Callable[[str], bool] | None = None,
    ) -> str:
        """Stores a copy of a directory, and returns the id."""
        with self.store_path(metadata, shard=shard) as (directory, storage_id):
            if ckpt_dir is not None:
                source = Path(ckpt_dir)
                for path in sorted(source.rglob("*")):
                    name = path.relative_to(source).as_posix()
                    if path.is_file() and (selector is None or selector(name)):
                        (directory / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(path, directory / name)
        return storage_id

    @contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Callable[[str], bool] | None = None,
    ) -> Iterator[Path]:
        """The files of a checkpoint, read-only."""
        self._check(storage_id)
        with self._run.checkpoint.restore(all_ranks=True) as directory:
            yield directory

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | Path,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Callable[[str], bool] | None = None,
    ) -> None:
        """Copies the files of a checkpoint into a directory."""
        with self.restore_path(storage_id) as directory:
            chosen = (lambda name: True) if selector is None else selector
            for path in sorted(directory.rglob("*")):
                name = path.relative_to(directory).as_posix()
                if path.is_file() and chosen(name):
                    target = Path(ckpt_dir) / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        self._check(storage_id)
        assert self._run.checkpoint.latest is not None
        return dict(self._run.checkpoint.latest.metadata)

    def delete(self, storage_id: str) -> None:
        raise UserError("checkpoint.delete: checkpoint_policy and checkpoint_storage.save_* say which checkpoints are kept.")

    def _check(self, storage_id: str) -> None:
        latest = self._run.checkpoint.latest
        if latest is None or storage_id != latest.id:
            self._run.checkpoint.wait()
            latest = self._run.checkpoint.latest
        if latest is None or storage_id != latest.id:
            there = "it has none" if latest is None else f"that is {latest.id}"
            raise UserError(
                f"checkpoint {storage_id!r} is not the trial's latest ({there}), which alone is at hand here; name another "
                "experiment's with searcher.source_checkpoint."
            )

    def _steps(self, metadata: Mapping[str, Any] | None) -> int:
        steps = (metadata or {}).get("steps_completed")
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise UserError("metadata for a checkpoint must have 'steps_completed', a whole number.")
        return steps
