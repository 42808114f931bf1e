"""An agent with several runtimes: trials that name an image run in containers, all others as processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.runtimes.docker.runtime import DockerRuntime
from tenuto.workers.agent.runtimes.docker.warm_runs import HANDLE
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.runtime import Cut, Endpoint, Exit, Handle, Offsets, Output, Runtime, Work
from tenuto.workers.endings import Ending


class SeveralEndpoints:
    def __init__(self, *endpoints: Endpoint) -> None:
        self._endpoints = endpoints

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(address for endpoint in self._endpoints for address in endpoint.addresses)

    def prepare(self) -> None:
        for endpoint in self._endpoints:
            endpoint.prepare()

    def opened(self) -> None:
        for endpoint in self._endpoints:
            endpoint.opened()

    def closed(self) -> None:
        for endpoint in self._endpoints:
            endpoint.closed()


class ProcessesAndContainers:
    def __init__(self, processes: ProcessRuntime, containers: DockerRuntime) -> None:
        self.processes, self.containers = processes, containers
        self._all: tuple[Runtime, ...] = (processes, containers)
        self._endpoint = SeveralEndpoints(*(runtime.endpoint for runtime in self._all))

    def _of(self, allocation_id: str) -> Runtime:
        return self.containers if self.containers.has(allocation_id) else self.processes

    def _behind(self, handle: Handle) -> Runtime:
        return self.containers if handle.startswith(HANDLE) else self.processes

    def _for(self, work: Work) -> Runtime:
        return self.processes if work.assignment.config.environment.image is None else self.containers

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.processes.slots

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for runtime in self._all for name in runtime.names))

    @property
    def unlimited(self) -> str:
        return "; ".join(filter(None, (runtime.unlimited for runtime in self._all)))

    @property
    def separate_account(self) -> bool:
        return any(runtime.separate_account for runtime in self._all)

    async def open(self) -> None:
        for runtime in self._all:
            await runtime.open()

    async def warm_up(self) -> None:
        for runtime in self._all:
            await runtime.warm_up()

    async def close(self) -> None:
        for runtime in self._all:
            await runtime.close()

    async def find(self) -> Mapping[str, Sequence[Handle]]:
        return {**await self.processes.find(), **await self.containers.find()}

    async def sweep(self, live: Collection[str]) -> None:
        for runtime in self._all:
            await runtime.sweep(live)

    async def prepare(self, work: Work) -> None:
        await self._for(work).prepare(work)

    async def start(self, work: Work) -> Handle:
        return await self._for(work).start(work)

    async def go(self, handle: Handle) -> None:
        await self._behind(handle).go(handle)

    def note_told(self, allocation_id: str, ending: Ending) -> None:
        self._of(allocation_id).note_told(allocation_id, ending)

    async def abandon(self, handle: Handle) -> None:
        await self._behind(handle).abandon(handle)

    async def kill(self, handle: Handle) -> None:
        await self._behind(handle).kill(handle)

    async def kill_all(self, allocation_id: str) -> bool:
        return await self._of(allocation_id).kill_all(allocation_id)

    async def wait(self, allocation_id: str, handle: Handle) -> Exit:
        return await self._behind(handle).wait(allocation_id, handle)

    async def output(self, allocation_id: str, rank: int | None, offsets: Offsets, *, final: bool, cut: Cut = len) -> Output:
        return await self._of(allocation_id).output(allocation_id, rank, offsets, final=final, cut=cut)

    async def opened_rendezvous(self, allocation_id: str) -> str:
        return await self._of(allocation_id).opened_rendezvous(allocation_id)

    async def place_rendezvous(self, allocation_id: str, address: str) -> None:
        await self._of(allocation_id).place_rendezvous(allocation_id, address)

    async def clean(self, allocation_id: str) -> None:
        await self._of(allocation_id).clean(allocation_id)
