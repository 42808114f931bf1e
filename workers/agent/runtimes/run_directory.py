"""Common part of runtimes whose workers write their output into files of the run's own directory."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from tenuto.workers.agent.runtimes.files import RunFiles, read_lines
from tenuto.workers.agent.runtimes.runtime import Cut, Offsets, Output, Work
from tenuto.workers.agent.untrusted_files import place, read_foreign
from tenuto.workers.launch.layout import RENDEZVOUS_FILE

LOOK_SECONDS = 0.05
"""Pause between checks whether rank 0's side listens: it does within a fraction of a second, and the others wait for it."""


class RunDirectories(ABC):
    @abstractmethod
    def files(self, allocation_id: str) -> RunFiles:
        """Files of a run."""

    @property
    def runs_images(self) -> bool:
        return False

    @property
    def unlimited(self) -> str:
        return ""

    async def vacate(self, work: Work) -> None:  # noqa: B027 - most keep nothing
        """Does nothing: a runtime that keeps processes on slots ends them here."""

    def has(self, allocation_id: str) -> bool:
        return self.files(allocation_id).directory.is_dir()

    async def output(self, allocation_id: str, rank: int | None, offsets: Offsets, *, final: bool, cut: Cut = len) -> Output:
        files = self.files(allocation_id)
        if rank is not None:
            files = files.of_rank(rank)
        out = read_lines(files.stdout, offsets[0], final=final, owner=files.owner, cut=cut)
        err = read_lines(files.stderr, offsets[1], final=final, owner=files.owner, cut=cut)
        return Output(out.texts, err.texts, (out.offset, err.offset), (out.bar, err.bar))

    async def opened_rendezvous(self, allocation_id: str) -> str:
        files = self.files(allocation_id)
        path = files.directory / RENDEZVOUS_FILE
        while not path.exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(LOOK_SECONDS)
        return read_foreign(path, files.owner)

    async def place_rendezvous(self, allocation_id: str, address: str) -> None:
        path = self.files(allocation_id).directory / RENDEZVOUS_FILE
        if path.parent.is_dir() and not path.exists():
            place(path, address)
