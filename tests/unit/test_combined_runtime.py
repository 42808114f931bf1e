"""Several runtimes of one agent: which of them is asked for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tenuto.workers.agent.runtimes.combined_runtime import SeveralRuntimes
from tenuto.workers.agent.runtimes.runtime import Handle, Runtime, Work
from tests.support.control_plane import make_assignment
from tests.support.runtimes import work_of


class _Bare:
    """A runtime that derives from nothing of ours, and keeps no process."""

    endpoint = None

    def __init__(self, *, takes: bool) -> None:
        self._takes = takes

    def takes(self, work: Work) -> bool:
        return self._takes

    async def start(self, work: Work) -> Handle:
        return Handle("started")


class _Keeps(_Bare):
    vacated = 0

    async def vacate(self, work: Work) -> None:
        self.vacated += 1


async def test_a_start_ends_what_other_runtimes_keep_of_those_that_keep_something(tmp_path: Path) -> None:
    bare, keeps, takes = _Bare(takes=False), _Keeps(takes=False), _Keeps(takes=True)
    several = SeveralRuntimes(*(cast(Runtime, cast(Any, one)) for one in (bare, keeps, takes)))
    work = work_of(tmp_path, make_assignment("0" * 64))
    assert await several.start(work) == "started"
    assert (keeps.vacated, takes.vacated) == (1, 0)
    await several.vacate(work)
    assert (keeps.vacated, takes.vacated) == (2, 1)
