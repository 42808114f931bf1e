"""The start of a run: what is prepared for long can be given up, and what cannot be prepared is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.workers.agent import starting
from tenuto.workers.agent.live_run import LiveRun
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.outcome import End
from tenuto.workers.agent.runs import RunRecord
from tenuto.workers.agent.starting import RunStarter
from tests.support.control_plane import AGENT, make_assignment
from tests.support.waiting import SECONDS_MAX


class SlowRuntime:
    """Fetches an image that does not come."""

    def __init__(self, error: OSError | None = None) -> None:
        self.preparing, self.given_up, self.started, self._error = asyncio.Event(), False, False, error

    async def prepare(self, work: object) -> None:
        self.preparing.set()
        if self._error is not None:
            raise self._error
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up = True

    async def start(self, work: object) -> str:
        self.started = True
        return "handle"


def starter(runtime: SlowRuntime, directory: Path) -> RunStarter:
    async def unpack(*_: object) -> Path:
        return directory

    return RunStarter(AgentNode(AGENT, directory), cast(Any, runtime), cast(Any, SimpleNamespace(unpack=unpack)), cast(Any, None))


async def test_a_run_that_is_killed_while_it_is_prepared_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "LOOK_SECONDS", 0.01)
    runtime = SlowRuntime()
    live = LiveRun(RunRecord("1-1-1", 1, "starting", "token", make_assignment("0" * 64)))
    ending = asyncio.create_task(starter(runtime, tmp_path).start(live))
    await runtime.preparing.wait()
    live.run = replace(live.run, killed_for="pause")
    async with asyncio.timeout(SECONDS_MAX):
        end = await ending
    assert isinstance(end, End)
    assert (end.outcome, runtime.given_up, runtime.started) == ("paused", True, False)


async def test_a_run_that_cannot_be_prepared_is_lost(tmp_path: Path) -> None:
    runtime = SlowRuntime(OSError("no space left on device"))
    live = LiveRun(RunRecord("1-1-1", 1, "starting", "token", make_assignment("0" * 64)))
    end = await starter(runtime, tmp_path).start(live)
    assert isinstance(end, End)
    assert (end.outcome, end.error) == ("lost", "the worker process could not be started: no space left on device")
    assert not runtime.started


async def test_without_a_shared_directory_no_trial_starts_that_would_keep_its_checkpoints_there(tmp_path: Path) -> None:
    runtime, live = SlowRuntime(), LiveRun(RunRecord("1-1-1", 1, "starting", "token", make_assignment("0" * 64)))
    begins = starter(runtime, tmp_path)
    begins._node = replace(begins._node, has_shared=False)
    end = await begins.start(live)
    assert isinstance(end, End)
    assert (end.outcome, runtime.started) == ("failed", False)
    assert end.error is not None
    assert "name an object store in checkpoint_storage.store" in end.error
