"""The files of a reported checkpoint in a shared directory."""

from __future__ import annotations

from pathlib import Path

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.opening import is_manifest, open_location
from tenuto.schemas.config.storage import SharedDirectoryStorage
from tenuto.schemas.reports import CheckpointReport


def stored_files(report: CheckpointReport) -> dict[str, Path]:
    """Where each of its files lies, by its path in the checkpoint."""
    if not is_manifest(report.location):
        directory = Path(report.location.removeprefix("file://"))
        return {file.path: directory / file.path for file in report.files}
    store, checkpoint_id = open_location(report.location, SharedDirectoryStorage())
    manifest = checkpoints.read_manifest(store, checkpoint_id)
    checkpoints.check_record(manifest, report.files)
    found = {file.path: store.local_path(file.blob) for file in manifest.files}
    return {path: local for path, local in found.items() if local is not None}
