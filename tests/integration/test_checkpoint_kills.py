"""A trial killed at random moments, while its checkpoints are written beside its training (`benchmarks/checkpoint_kills.py` has
more kills)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.killed_training import KilledTraining
from tests.support.s3_server import S3Server

KILLS = 5


def _temporary() -> set[Path]:
    return {*Path(tempfile.gettempdir()).glob("checkpoint-*")}


def test_a_trial_that_is_killed_at_any_moment_loses_no_checkpoint_and_leaves_none_that_is_not_whole(
    tmp_path: Path, s3_server: S3Server
) -> None:
    """Each checkpoint has the bytes of a trial that waited for its checkpoints and that nobody killed."""
    before = _temporary()
    trial = KilledTraining(tmp_path)
    try:
        for server in (None, s3_server):
            trial.move(server)
            for _ in range(KILLS):
                trial.kill()
    finally:
        trial.close()
    assert _temporary() == before, "files on their way to a store are beside the trial's others"
