"""What the agent asks of whatever runs its workers, and what it is promised. tests/contract/test_runtime.py tries each promise.

A run goes through these calls, in this order: `prepare`, `start`, `go`, `output` as often as somebody may have printed, `wait`,
`clean`. An agent may die between any two of them; the next one on the same directory goes on with the handle, which is all that
is on disk.

- **Workers outlive the agent.** Only `kill` and `kill_all` end them.
- **Nothing of the user's runs before `go`.** Where the agent dies before it has noted the handle, what was started leaves, or
  `find` names it. Where it dies between the note and `go`, the next agent's `wait` returns at once, without an exit code.
- **`wait` returns when nothing of the run is left**: slots are free then, whatever the user's code has started and left behind.
- **What a worker wrote, and how it ended, can be asked for until `clean`**, also of what ended while no agent was there.
- **A worker starts in its model directory**, and finds directories of the node under the same paths: that one, its checkpoints,
  directories of stores.
- **What workers write is never trusted**: whatever is read of it is bounded, and is no link to somebody else's file.

Raised everywhere: OSError for what may work when it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NewType, Protocol

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.events.agent import Slot

Handle = NewType("Handle", str)
"""Of what a run was started as, for that run only: never mistaken for a later one. Only its runtime can read it."""
Offsets = tuple[int, int]
"""How much of standard output and of standard error was read: (0, 0) at the beginning, afterwards what `output` returned last."""

Cut = Callable[[bytes], int]
"""Of a line that is too long, and goes on: how much of these bytes, at least one, may be taken for a line."""


class RuntimeUnavailable(RuntimeError):
    """Workers cannot be run so on this node; `str(error)` says why and what to do."""


class StillRunning(RuntimeError):
    """Something of a run does not die. Its slots stay taken."""


@dataclass(frozen=True)
class Work:
    """What to run: this agent's part of an allocation."""

    assignment: Assignment
    context: Path
    """The model directory: workers may read it."""
    token: str = field(repr=False)
    """By which the agent knows its worker. In no environment that other processes can read."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of the worker, of which nothing may be left on disk or be printed."""

    @property
    def allocation_id(self) -> str:
        return self.assignment.allocation_id


@dataclass(frozen=True)
class Output:
    """What was printed since, without empty lines. As it was printed: secrets are not hidden yet."""

    stdout: tuple[str, ...]
    stderr: tuple[str, ...]
    offsets: Offsets
    """Where to go on; the same as before if there was nothing."""


@dataclass(frozen=True)
class Exit:
    """How a worker ended, from what it left behind. Secrets are not hidden yet."""

    code: int | None
    """As a shell tells it: 128 and the number for a signal. None: nobody was left to tell, as where all was killed."""
    said: str = ""
    """The sentence that it wrote for the user, about what went wrong."""
    last_lines: tuple[str, ...] = ()
    """The end of standard error, where something went wrong and it wrote no sentence."""


class Endpoint(Protocol):
    """Where the agent listens for its workers. The same for every agent on a directory, as workers outlive it."""

    @property
    def address(self) -> str:
        """As gRPC names it, on the agent's side."""
        ...

    def prepare(self) -> None:
        """Before the agent listens. Raises OSError."""
        ...

    def opened(self) -> None:
        """The agent listens: lets its workers, and nobody else, reach it. Raises OSError."""
        ...


class Runtime(Protocol):
    """Of one agent. Calls about different runs may overlap; those about one run follow each other, but for `kill`, `kill_all` and
    `output`, which may come while `wait` does."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What the node offers."""
        ...

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def separate_account(self) -> bool:
        """Workers run as another account than the agent, which must let them pass to what they may read."""
        ...

    async def open(self) -> None:
        """Makes what all runs need. The agent's directory is there, and is this agent's alone. Raises RuntimeUnavailable."""
        ...

    async def warm_up(self) -> None:
        """Begins with what makes the first start quicker. Does not wait for it."""
        ...

    async def close(self) -> None:
        """Lets go of everything. What was given its `go` runs on, the rest leaves."""
        ...

    async def find(self) -> Mapping[str, Sequence[Handle]]:
        """What runs here of runs of this directory, by allocation, whoever started it. What leaves by itself once the others are
        gone is not among it."""
        ...

    async def sweep(self, live: Collection[str]) -> None:
        """Removes what was kept on disk of allocations that are not among `live`."""
        ...

    async def prepare(self, work: Work) -> None:
        """Makes what the run needs on disk: its own directories; an image, if it needs one. What an earlier try has left is
        removed. It may take minutes, and is cancelled where the run is killed meanwhile. Raises OSError."""
        ...

    async def start(self, work: Work) -> Handle:
        """After `prepare`: what waits for its `go`. Raises OSError."""
        ...

    async def go(self, handle: Handle) -> None:
        """Lets it run. Does nothing where it was killed meanwhile: `wait` tells that."""
        ...

    async def abandon(self, handle: Handle) -> None:
        """In place of `go`: it leaves without having run anything."""
        ...

    async def kill(self, handle: Handle) -> None:
        """Kills the worker and what is with it. Does not wait for their end, and does nothing where they have ended."""
        ...

    async def kill_all(self, allocation_id: str) -> bool:
        """Kills whatever runs of that allocation, and waits for its end. False: something did not die."""
        ...

    async def wait(self, allocation_id: str, handle: Handle) -> Exit:
        """Returns when the worker has ended, and nothing of its run is left: what it left behind is killed. It may be cancelled,
        and called again. Raises StillRunning."""
        ...

    async def output(self, allocation_id: str, rank: int | None, offsets: Offsets, *, final: bool, cut: Cut = len) -> Output:
        """What the worker (of a gang: its supervisor) has printed since; or the rank of that number. Complete lines, some hundred
        kilobytes at most; an unfinished last line only if it is `final`, or alone takes up all of that: then up to
        where it may be `cut`."""
        ...

    async def opened_rendezvous(self, allocation_id: str) -> str:
        """Waits until the supervisor of a gang's rank 0, which runs here, has said where it listens. Raises OSError."""
        ...

    async def place_rendezvous(self, allocation_id: str, address: str) -> None:
        """Tells a gang's supervisor here where rank 0's listens, before its start or later. What it was told first counts. Does
        nothing where there is no such run. Raises OSError."""
        ...

    async def clean(self, allocation_id: str) -> None:
        """Removes all that was kept of a run whose workers are gone."""
        ...
