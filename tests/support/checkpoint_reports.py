"""The files of a checkpoint in a directory, as a worker reported it to a stand-in for the agent, or as it was recorded."""

from __future__ import annotations

from pathlib import Path

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.schemas.reports import CheckpointReport


def stored_files(report: CheckpointReport) -> dict[str, Path]:
    """Path in the store of each file, by its path in the checkpoint."""
    return _files(DirectoryStore(Path(report.location).parents[1]), report)


def recorded_files(saved: CheckpointSaved, shared_directory: Path) -> dict[str, Path]:
    """The same for a recorded checkpoint of a cluster with this shared directory."""
    store, _ = Stores(shared_directory / "checkpoints").open_location(saved.location, SHARED_STORE)
    assert isinstance(store, DirectoryStore)
    return _files(store, saved)


def _files(store: DirectoryStore, checkpoint: CheckpointReport | CheckpointSaved) -> dict[str, Path]:
    manifest = checkpoints.read_manifest(store, checkpoint.checkpoint_id)
    checkpoints.check_record(manifest, checkpoint.files)
    found = {file.path: store.local_path(file.blob) for file in manifest.files}
    return {path: local for path, local in found.items() if local is not None}
