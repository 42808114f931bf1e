"""Workers that stay on this node for the next run of their experiment (harness/kept_worker.py): at most one on each set of
slots.

One is given a run only if everything is alike that is fixed when a process begins. Any other run on one of its slots ends it
first, so that it never holds what others need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.entrypoint import script_of
from tenuto.workers.agent.local_ranks import is_gang, slots_on
from tenuto.workers.agent.runtimes.forks import PER_RUN
from tenuto.workers.agent.runtimes.process import processes
from tenuto.workers.agent.runtimes.process.processes import Identity
from tenuto.workers.agent.runtimes.process.warm import WarmSpawned
from tenuto.workers.agent.runtimes.runtime import Handle, Work
from tenuto.workers.harness.fork_orders import ForkOrder

LEAVE_SECONDS_MAX = 2.0
"""Longest wait for a worker that is given up: it runs nothing, and its leader kills it at once. Then the agent kills both."""


@dataclass(frozen=True)
class Likeness:
    """Properties that two runs of one process have in common."""

    experiment_id: int
    context: Path
    """The model directory: its name is the digest of its content."""
    slots: tuple[int, ...]
    config: ExperimentConfig
    variables: Mapping[str, str]

    @classmethod
    def of(cls, work: Work, agent_id: str, environment: Mapping[str, str]) -> Likeness | None:
        """None: the run has a process of its own."""
        assignment = work.assignment
        config = assignment.config
        slots = slots_on(assignment, agent_id)
        wants = config.environment.reuse_worker and bool(slots) and not (work.secrets or is_gang(assignment))
        if not wants or script_of(config.entrypoint) is not None:
            return None
        variables = {name: value for name, value in environment.items() if name not in PER_RUN}
        return cls(assignment.experiment_id, work.context, slots, config, variables)


@dataclass(frozen=True)
class _Kept:
    spawned: WarmSpawned
    likeness: Likeness


class KeptWorkers:
    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], _Kept] = {}
        """Workers by their slots."""
        self._running: dict[Identity, Likeness] = {}
        """Runs whose workers may stay, by their leaders."""
        self._runs: dict[Identity, int] = {}
        """Number of runs that are over, by leaders that have had one."""
        self.reused = 0
        """Number of runs that a kept worker has taken over."""

    def note(self, spawned: WarmSpawned, likeness: Likeness) -> None:
        """Notes that the worker of this run may stay."""
        self._running[spawned.identity] = likeness

    def note_ended(self, spawned: WarmSpawned) -> None:
        """Notes the end of a run: its worker stays, if it has said so. Otherwise its leader leaves, too."""
        likeness = self._running.pop(spawned.identity, None)
        if spawned.kept and likeness is not None:
            self._kept[likeness.slots] = _Kept(spawned, likeness)
            self._runs[spawned.identity] = spawned.runs_before + 1
        else:
            spawned.abandon()
            self._runs.pop(spawned.identity, None)

    async def vacate(self, slots: tuple[int, ...]) -> None:
        """Ends all workers that hold one of these slots."""
        for key in [key for key in self._kept if not set(key).isdisjoint(slots)]:
            await self._end(self._kept.pop(key).spawned)

    async def take(self, slots: tuple[int, ...], likeness: Likeness | None, job: Callable[[], ForkOrder]) -> WarmSpawned | None:
        """The worker that waits for such a run on these slots, with its order; None: there is none. Ends all others that hold one
        of the slots. `likeness`: None for a run with a process of its own."""
        kept = self._kept.get(slots)
        if likeness is None or kept is None or kept.likeness != likeness:
            await self.vacate(slots)
            return None
        del self._kept[slots]
        try:
            await kept.spawned.again(job())
        except (OSError, TimeoutError, ValueError):  # it has waited too long, or was killed
            await self._end(kept.spawned)
            return None
        kept.spawned.runs_before += 1
        self.reused += 1
        return kept.spawned

    def is_over(self, handle: Handle) -> bool:
        """True if that run has ended, although its leader lives, without a run or with a later one."""
        _, _, number = handle.partition(":")[2].partition(":")
        return self._runs.get(Identity.of(handle), 0) > int(number or 0)

    async def close(self) -> None:
        kept = [*self._kept.values()]
        self._kept.clear()
        await asyncio.gather(*(self._end(one.spawned) for one in kept))

    async def _end(self, spawned: WarmSpawned) -> None:
        """Ends a worker without a run; returns when it is gone."""
        self._runs.pop(spawned.identity, None)
        spawned.abandon()
        try:
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await processes.wait_gone(spawned.identity)
        except TimeoutError:
            await asyncio.to_thread(processes.kill, spawned.identity)
            await processes.wait_gone(spawned.identity)
