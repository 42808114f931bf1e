"""A machine that joins a cluster as its user does it: by `tenuto agent run`."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.live_cluster import COLD, COMMAND_SECONDS_MAX, TENUTO


class JoinedNode:
    """One directory, and at most one agent on it at a time."""

    def __init__(self, directory: Path, name: str, *, inside: tuple[str, ...] = (), **variables: str) -> None:
        """`inside`: a command that runs it, in a network namespace for example."""
        self.directory, self.name, self._inside = directory, name, inside
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TENUTO_")}
        self.environment = {**kept, **COLD, "TENUTO_HEARTBEAT_SECONDS": "0.5", **variables}
        self.log = directory.with_name(f"{directory.name}.log")
        self.agent: psutil.Popen | None = None

    def start(self, token: str = "", *options: str) -> psutil.Popen:
        join = ["--join", token] if token else []
        own = ["--name", self.name] if token else []
        command = [*self._inside, str(TENUTO), "agent", "run", "--directory", str(self.directory), "--cpu-slots", "1"]
        with self.log.open("ab") as log:
            self.agent = psutil.Popen([*command, *join, *own, *options], env=self.environment, stdout=log, stderr=log)
        return self.agent

    def left_with(self) -> int:
        """Exit code of the agent, which ends by itself."""
        assert self.agent is not None
        code = self.agent.wait(COMMAND_SECONDS_MAX)
        assert code is not None, self.said()
        return int(code)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def die(self) -> None:
        """Kills the agent and all its processes at once, as a power failure does."""
        assert self.agent is not None
        for process in [self.agent, *self.agent.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.agent.wait(COMMAND_SECONDS_MAX)

    def stop(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
                self.agent.wait(COMMAND_SECONDS_MAX)


@contextlib.contextmanager
def stopped_at_end(*nodes: JoinedNode) -> Iterator[None]:
    try:
        yield
    finally:
        for node in nodes:
            node.stop()
