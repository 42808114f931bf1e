"""Loads the checkpoint that a trial resumes from, or begins with, into its trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from tenuto.schemas.assignments import SourceCheckpoint
from tenuto.workers.checkpoints.files import RECORD_FILE, CheckpointRecord, UnusableCheckpoint
from tenuto.workers.errors import REPEATING, WillRepeat
from tenuto.workers.harness.trainer import Trainer


def load_checkpoint(
    trainer: Trainer, source: SourceCheckpoint, directory: Path, say: Callable[[str], None]
) -> CheckpointRecord | None:
    """Returns the checkpoint's record; None: only the weights are loaded. Raises UnusableCheckpoint, WillRepeat, or other
    errors of the user's code."""
    if source.weights_only:
        trainer.load_weights(directory)
        say(f"begins with the weights of checkpoint {source.checkpoint_id}")
        return None
    if source.trusted_user:
        say(f"loads objects that a trial of {source.trusted_user} pickled: the submitter of this experiment chose to trust them")
    try:
        record = CheckpointRecord.from_json((directory / RECORD_FILE).read_bytes())
        trainer.load(directory)
    except (OSError, ValidationError) as error:
        raise UnusableCheckpoint(f"checkpoint {source.checkpoint_id} cannot be read: {error}") from error
    except REPEATING as error:
        raise WillRepeat(
            f"checkpoint {source.checkpoint_id} cannot be loaded, and a restart would not help: {type(error).__name__}: {error}"
        ) from error
    if trainer.batches != source.batches:
        raise UnusableCheckpoint(
            f"checkpoint {source.checkpoint_id} was recorded at batch {source.batches}, but holds batch {trainer.batches}."
        )
    say(f"resumed from checkpoint {source.checkpoint_id} at batch {source.batches}")
    return record
