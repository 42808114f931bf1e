"""The protocol between the agent and a runtime, and the runtime's promises. tests/contract/test_runtime.py tests each promise.

A run goes through these calls, in this order: `prepare`, `start`, `go`, `output` repeatedly, `wait`, `clean`. An agent may die
between any two of them; the next one on the same directory goes on with the handle, which is all that is on disk.

- **Workers outlive the agent.** Only `kill` and `kill_all` end them.
- **None of the user's code runs before `go`.** If the agent dies before it has stored the handle, the started process leaves, or
`find` names it. If it dies between storing and `go`, the next agent's `wait` returns at once, without an exit code.
- **`wait` returns when no process of the run is left**: slots are free then, whatever the user's code has started and left
behind.
- **Output and exit can be read until `clean`**, also of a worker that ended while no agent was running.
- **A worker starts in its model directory**, and finds directories of the node under the same paths: that one, its checkpoints,
directories of stores.
- **Files written by workers are never trusted**: reading them is bounded, and follows no link to another user's file.

All calls raise OSError for failures that may pass.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NewType, Protocol

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.run import Cause
from tenuto.workers.endings import SIGNAL_EXIT_BASE, Ending

Handle = NewType("Handle", str)
"""Identity of a started run; never mistaken for a later one. Only the runtime can read it."""
Offsets = tuple[int, int]
"""Bytes read of standard output and standard error: (0, 0) at the beginning, later the value that `output` returned last."""

Cut = Callable[[bytes], int]
"""Function that cuts a line that is too long and continues: number of its bytes, at least one, that may be taken as a line."""


class RuntimeUnavailable(RuntimeError):
    """This runtime cannot run workers on this node; `str(error)` says why and what to do."""


class EnvironmentUnusable(RuntimeError):
    """The environment that the configuration names cannot be used: `str(error)` says why and what to do. Another start would
    fail, too."""


class StillRunning(RuntimeError):
    """A process of a run does not die. Its slots stay taken."""


@dataclass(frozen=True)
class Work:
    """Description of a run: this agent's part of an allocation."""

    assignment: Assignment
    context: Path
    """The model directory, which workers may read."""
    token: str = field(repr=False)
    """Token by which the agent recognises its worker. It must not be in an environment that other processes can read."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of the worker whose values must not stay on disk or be printed."""
    registry_auth: str = field(default="", repr=False)
    """Value of the secret with the user's credentials for the registry of the image; empty: none. It is never stored."""

    @property
    def allocation_id(self) -> str:
        return self.assignment.allocation_id


@dataclass(frozen=True)
class Output:
    """New output, without empty lines. Secrets are not masked yet."""

    stdout: tuple[str, ...]
    stderr: tuple[str, ...]
    offsets: Offsets
    """Offsets to go on from; unchanged if there was no output."""
    bars: tuple[bool, bool] = (False, False)
    """True for stdout, for stderr: its output is a progress bar that goes on, and no whole line."""


@dataclass(frozen=True)
class Exit:
    """End of a worker, from the traces that it left. Secrets are not masked yet."""

    code: int | None
    """Exit code as a shell reports it: 128 plus the number for a signal. None: not known, because no process was left to
    report it."""
    said: str = ""
    """Sentence for the user that the worker wrote about an error."""
    last_lines: tuple[str, ...] = ()
    """End of standard error, if there was an error without such a sentence."""
    signaled: bool = False
    """True: the code is that of a death by a signal."""
    cause: Cause | None = None
    """Cause that the runtime itself knows: no code of the user's had begun."""
    out_of_memory: bool = False
    """True: the kernel killed processes of the run because it had used all memory that it may; `said` has the limit, and `code`
    is that of a death for it."""
    own_code: int | None = None
    """Exit code of a worker that ended by itself although others of its run were killed for memory."""

    def for_memory(self, said: str) -> Exit:
        """The same end of a run of which processes were killed for memory. Its ending decides if the run failed."""
        own = None if self.killed else self.code
        return Exit(SIGNAL_EXIT_BASE + signal.SIGKILL, said, out_of_memory=True, own_code=own)

    @property
    def killed(self) -> bool:
        """True: the worker died by a signal, or no process was left to report its end."""
        return self.signaled or self.code is None


class Endpoint(Protocol):
    """Address at which the agent listens for its workers. It is the same for every agent on a directory, because workers
    outlive it."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses as gRPC names them, on the agent's side: one for each runtime of the agent."""
        ...

    def prepare(self) -> None:
        """Prepares the address before the agent listens. Raises OSError."""
        ...

    def opened(self) -> None:
        """Opens the address to the agent's workers, and to no other process. Called once the agent listens. Raises OSError."""
        ...

    def closed(self) -> None:
        """Closes the address. Called when the agent has stopped listening. Raises OSError."""
        ...


class Keeper(Protocol):
    """Part of a runtime that keeps processes without a run. Optional: one that keeps none needs no such method."""

    async def vacate(self, work: Work) -> None:
        """Ends processes without a run that are kept on the slots of this work, which another runtime is about to start."""
        ...


class Runtime(Protocol):
    """Runtime of one agent. Calls about different runs may overlap; those about one run follow each other, except `kill`,
    `kill_all` and `output`, which may come during `wait`. One that keeps processes without a run is a `Keeper`, too."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Slots that the node offers."""
        ...

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Ways in which this runtime can run workers just now, sorted: names of plug-ins."""
        ...

    @property
    def runs_images(self) -> bool:
        """True: it can run work that names an image just now."""
        ...

    @property
    def unlimited(self) -> str:
        """Reason why runs lack some of the limits that the operator set; empty if they have all, or none are set."""
        ...

    @property
    def separate_account(self) -> bool:
        """True: workers run as another account than the agent, which must let them pass to the files that they may read."""
        ...

    def takes(self, work: Work) -> bool:
        """True if such work is this runtime's. An agent with several gives it to the first that takes it."""
        ...

    def owns(self, handle: Handle) -> bool:
        """True if the handle is one of this runtime's, also an earlier agent's. Handles of other kinds have another form."""
        ...

    def has(self, allocation_id: str) -> bool:
        """True if this allocation has files here."""
        ...

    async def open(self) -> None:
        """Prepares what all runs need. The agent's directory exists, and no other agent uses it. Raises RuntimeUnavailable."""
        ...

    async def warm_up(self) -> None:
        """Begins preparations that make the first start faster. Does not wait for them."""
        ...

    async def close(self) -> None:
        """Releases all resources. Workers that were given their `go` run on, others leave."""
        ...

    async def find(self) -> Mapping[str, Sequence[Handle]]:
        """Processes of this directory's runs, by allocation, whichever agent started them. Helpers that leave by themselves
        once the others are gone are not included."""
        ...

    async def sweep(self, live: Collection[str]) -> None:
        """Removes files of allocations that are not in `live`."""
        ...

    async def prepare(self, work: Work) -> None:
        """Prepares a run on disk: its directories, and an image if it needs one. Files of an earlier attempt are removed. This
        may take minutes, and is cancelled if the run is killed meanwhile. Raises OSError and EnvironmentUnusable."""
        ...

    async def start(self, work: Work) -> Handle:
        """Starts a prepared run, which then waits for its `go`. Raises OSError and EnvironmentUnusable."""
        ...

    async def go(self, handle: Handle) -> None:
        """Lets the run begin. Does nothing if it was killed meanwhile, which `wait` reports."""
        ...

    def note_told(self, allocation_id: str, ending: Ending) -> None:
        """Notes the ending that the run's worker announces before it ends."""
        ...

    async def abandon(self, handle: Handle) -> None:
        """Replaces `go`: the worker leaves without having run anything."""
        ...

    async def kill(self, handle: Handle) -> None:
        """Kills the worker and the processes with it. Does not wait for their end, and does nothing if they have ended."""
        ...

    async def kill_all(self, allocation_id: str) -> bool:
        """Kills all processes of the allocation, and waits for their end. False: one did not die."""
        ...

    async def wait(self, allocation_id: str, handle: Handle) -> Exit:
        """Returns when the worker has ended, and no process of its run is left: remaining ones are killed. It may be
        cancelled, and called again. Raises StillRunning."""
        ...

    async def output(self, allocation_id: str, rank: int | None, offsets: Offsets, *, final: bool, cut: Cut = len) -> Output:
        """New output of the worker (of a gang: its supervisor), or of the rank with that number. Complete lines, some hundred
        kilobytes at most; an unfinished last line only if it is `final`, or alone fills the limit: then up to the number of
        bytes that `cut` allows."""
        ...

    async def opened_rendezvous(self, allocation_id: str) -> str:
        """Waits until the supervisor of a gang's rank 0, which runs here, has written the address at which it listens. Raises
        OSError."""
        ...

    async def place_rendezvous(self, allocation_id: str, address: str) -> None:
        """Gives a gang's supervisor on this node the address of rank 0's, before its start or later. The first address counts.
        Does nothing if there is no such run. Raises OSError."""
        ...

    async def clean(self, allocation_id: str) -> None:
        """Removes all files of a run whose workers are gone."""
        ...
