"""A worker process of a test: its end, its output, and what it did where it does not end."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import until
from tests.support.warm_starts import WarmProcess

WAIT_SECONDS_MAX = 240.0
"""A worker that says nothing for so long is stuck; importing torch takes seconds on a busy machine."""


@dataclass
class WorkerRun:
    process: subprocess.Popen[str] | WarmProcess
    log: Path

    def wait(self) -> int:
        """Waits for the exit code. A worker that does not end prints the stacks of its threads, and the test those of its own."""
        try:
            return self.process.wait(WAIT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(WAIT_SECONDS_MAX)
            with tempfile.TemporaryFile("w+") as stacks:
                faulthandler.dump_traceback(stacks)
                stacks.seek(0)
                raise AssertionError(f"it did not end: {self.output()}\nThe test meanwhile:\n{stacks.read()}") from None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_SECONDS_MAX)

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_output(self, words: str) -> None:
        """Waits until the worker has printed these words, by polling: its output makes no event."""
        until(self.output, lambda said: words in said)
