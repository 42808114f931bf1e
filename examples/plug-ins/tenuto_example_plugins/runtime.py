"""Workers as processes with a low priority: on a machine that people work at, too, they train on what is left."""

from __future__ import annotations

import os

from tenuto.workers.agent.runtimes.opening import Opening
from tenuto.workers.agent.runtimes.process.opening import opened as opened_processes
from tenuto.workers.agent.runtimes.process.processes import Identity
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.runtime import Handle, Work

NICENESS = 10


class NiceRuntime(ProcessRuntime):
    """Instead of `process`, and not beside it: both use the same files."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("nice",)

    async def start(self, work: Work) -> Handle:
        handle = await super().start(work)
        try:  # before its go: what the user's code starts has this priority, too
            os.setpriority(os.PRIO_PGRP, os.getpgid(Identity.of(handle).pid), NICENESS)
        except OSError:
            await self.abandon(handle)
            raise
        return handle


def opened(asked: Opening) -> NiceRuntime:
    runtime = opened_processes(asked, NiceRuntime)
    assert isinstance(runtime, NiceRuntime)
    return runtime
