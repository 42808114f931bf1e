"""A trial that is killed at random moments while it trains and its checkpoints are written, as often as one likes, in processes
forked from one that has imported torch. After each kill: all that was reported is whole, nothing else can be taken for a
checkpoint, and each has the bytes of a trial that nobody killed and that waited for its checkpoints."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.store import Store
from tenuto.schemas.assignments import Assignment, SourceCheckpoint
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.trial import files_hash
from tenuto.schemas.ids import location_of
from tenuto.schemas.reports import CheckpointReport
from tests.support.s3_server import S3Server

END, PERIOD = 40, 2
"""Batches of the trial, and between two checkpoints."""
TRIAL = "1-1"


def assignment(number: int, width: int, source: CheckpointReport | None, asynchronous: bool) -> Assignment:
    config = ExperimentConfig.model_validate(
        {
            "name": "n",
            "entrypoint": "m:T",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": END}},
            "min_checkpoint_period": {"batches": PERIOD},
            "min_validation_period": {"batches": 5 * PERIOD},
            "checkpoint_storage": {"async_save": asynchronous},
        }
    )
    checkpoint = None
    if source is not None:
        checkpoint = SourceCheckpoint(
            checkpoint_id=source.checkpoint_id, location=location_of("shared", TRIAL, source.checkpoint_id),
            batches=source.batches, files_hash=files_hash(source.files),
        )  # fmt: skip
    return Assignment(
        allocation_id=f"{TRIAL}-{number}", trial_id=TRIAL, trial_number=1, experiment_id=1, config=config, context_hash="",
        hyperparameters={"width": width}, trial_seed=1, experiment_seed=1, slots=(), checkpoint=checkpoint, target_length=END,
    )  # fmt: skip


@dataclass
class KilledTraining:
    """`server`: of the store; None: a directory."""

    directory: Path
    server: S3Server | None = None
    width: int = 200
    kills: int = 0
    amid: int = 0
    """Kills that left something unfinished in the store: they came while a checkpoint was written or sent."""
    checkpoints: int = 0
    """Checkpoints that were reported and compared."""
    resumed: int = 0
    """Processes that went on from a checkpoint."""
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def __post_init__(self) -> None:
        # Where an agent runs it, a trial's files on their way to the store are in the run's directory, and removed with that.
        self._temporary = self.directory / "temporary"
        self._temporary.mkdir()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(self._temporary)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed_training"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment, cwd=self.directory,
        )  # fmt: skip
        self._trials = 0
        self._expected = {report.batches: report.files for report in self._whole()}
        self._fresh()

    def _whole(self) -> list[CheckpointReport]:
        """A trial that nobody kills, and the time it takes."""
        self._fresh()
        found, _ = self._run(None, asynchronous=False)
        begun = time.monotonic()
        self._fresh()
        again, _ = self._run(None)
        self._seconds = time.monotonic() - begun
        assert [report.batches for report in found] == [report.batches for report in again] == [*range(PERIOD, END + 1, PERIOD)]
        assert [report.files for report in found] == [report.files for report in again]
        return found

    def move(self, server: S3Server | None) -> None:
        """Goes on with another trial, in another store."""
        self._fresh()
        self.server = server

    def _fresh(self) -> None:
        """Begins another trial."""
        if self.server is not None and self._trials:
            self.store.delete([entry.key for entry in self.store.entries("")])
        for path in (self.directory / "trial", *self._temporary.glob("checkpoint-*")):
            shutil.rmtree(path, ignore_errors=True)
        self._trials += 1
        self._number, self._last, self._seen = 0, None, 0
        (self.directory / "trial").mkdir()

    @property
    def store(self) -> Store:
        if self.server is not None:
            return self.server.store(f"killed-{self._trials}")
        return DirectoryStore(self.directory / "trial" / "store")

    def kill(self) -> None:
        """Trains on, kills the process at a random moment, and looks at what is left."""
        found, killed = self._run(self.chance.uniform(0.05, 1.0) * self._seconds)
        self.kills += killed
        reported = {report.checkpoint_id for report in found}
        for report in found:
            assert report.files == self._expected[report.batches], f"the checkpoint at batch {report.batches} has other bytes"
            checkpoints.check_record(checkpoints.read_manifest(self.store, report.checkpoint_id), report.files)
        self.checkpoints += len(found)
        if self._last is not None:
            reported.add(self._last.checkpoint_id)
        manifests = checkpoints.list_manifests(self.store)
        assert reported <= set(manifests), "a reported checkpoint is lost"
        whole = set()
        for name in sorted({*manifests[-3:], *reported}):
            manifest = checkpoints.read_manifest(self.store, name)
            assert checkpoints.verify(self.store, manifest) == [], f"checkpoint {name} is there, but not whole"
            whole |= {file.blob for file in manifest.files}
        if killed and self._is_unfinished(reported):
            self.amid += 1
        if found:
            self._last = found[-1]
        self.store.delete_unfinished(2**62)
        if not killed or self._number > 30:
            self._fresh()

    def _is_unfinished(self, reported: set[str]) -> bool:
        """True if there is more in the store than what was reported."""
        own = f"{TRIAL}-{self._number}-"
        others = {name for entry in self.store.entries("") if (name := checkpoints.writer_of(entry.key)).startswith(own)}
        partial = isinstance(self.store, DirectoryStore) and any(self.store.root.rglob(".partial-*"))
        return bool(others - reported) or partial

    def _run(self, seconds: float | None, asynchronous: bool = True) -> tuple[list[CheckpointReport], bool]:
        """Reports of one process, and whether it was killed."""
        self._number += 1
        self.resumed += self._last is not None
        reports = self.directory / "trial" / f"reports-{self._number}"
        order = {
            "assignment": json.loads(assignment(self._number, self.width, self._last, asynchronous).to_json()),
            "root": str(self.directory / "trial" / "store"), "reports": str(reports), "seconds": seconds,
            "s3": None if self.server is None else [self.server.port, self.server.bucket, f"killed-{self._trials}"],
        }  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL), f"it ended with {status}"
        lines = reports.read_text().splitlines(keepends=True) if reports.exists() else []
        return [CheckpointReport.from_json(line) for line in lines if line.endswith("\n")], status != 0

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    """Reads orders, and forks a process for each."""
    import torch

    from tests.support.killed_trial import train

    torch.set_num_threads(1)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                train(order)
                os._exit(0)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
        if order["seconds"] is not None:
            time.sleep(order["seconds"])  # a random moment, not an event
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
