"""An agent with several runtimes: each run belongs to the first that takes it; containers take runs that name an image."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tenuto.schemas.events.agent import Slot
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


class SeveralRuntimes:
    def __init__(self, *runtimes: Runtime) -> None:
        """`runtimes`: in the order in which they are asked. The first stands for runs that none has, and refuses work that none
        takes."""
        self.all = runtimes
        self._endpoint = SeveralEndpoints(*(runtime.endpoint for runtime in runtimes))

    def _first(self, fits: Callable[[Runtime], bool]) -> Runtime:
        return next((runtime for runtime in self.all if fits(runtime)), self.all[0])

    def _of(self, allocation_id: str) -> Runtime:
        return self._first(lambda runtime: runtime.has(allocation_id))

    def _behind(self, handle: Handle) -> Runtime:
        return self._first(lambda runtime: runtime.owns(handle))

    def _for(self, work: Work) -> Runtime:
        return self._first(lambda runtime: runtime.takes(work))

    def takes(self, work: Work) -> bool:
        return any(runtime.takes(work) for runtime in self.all)

    def owns(self, handle: Handle) -> bool:
        return any(runtime.owns(handle) for runtime in self.all)

    def has(self, allocation_id: str) -> bool:
        return any(runtime.has(allocation_id) for runtime in self.all)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.all[0].slots

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for runtime in self.all for name in runtime.names))

    @property
    def runs_images(self) -> bool:
        return any(runtime.runs_images for runtime in self.all)

    @property
    def unlimited(self) -> str:
        return "; ".join(filter(None, (runtime.unlimited for runtime in self.all)))

    @property
    def separate_account(self) -> bool:
        return any(runtime.separate_account for runtime in self.all)

    async def open(self) -> None:
        for runtime in self.all:
            await runtime.open()

    async def warm_up(self) -> None:
        for runtime in self.all:
            await runtime.warm_up()

    async def close(self) -> None:
        for runtime in self.all:
            await runtime.close()

    async def find(self) -> Mapping[str, Sequence[Handle]]:
        return {allocation_id: handles for runtime in self.all for allocation_id, handles in (await runtime.find()).items()}

    async def sweep(self, live: Collection[str]) -> None:
        for runtime in self.all:
            await runtime.sweep(live)

    async def prepare(self, work: Work) -> None:
        await self._for(work).prepare(work)

    async def vacate(self, work: Work) -> None:
        for runtime in self.all:
            await _vacate(runtime, work)

    async def start(self, work: Work) -> Handle:
        own = self._for(work)
        for other in self.all:
            if other is not own:
                await _vacate(other, work)
        return await own.start(work)

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


async def _vacate(runtime: Runtime, work: Work) -> None:
    vacate = getattr(runtime, "vacate", None)
    if vacate is not None:  # a runtime that keeps nothing needs none
        await vacate(work)
