"""The supervisor: starts the local ranks of a gang, passes on their messages, notices the first that fails, and ends all of them
together.

At its end it tells its agent how the ranks ended; each has told it. The sentence for the user is in the error file. Its exit
code is that of rank 0 if all is well; else that of the rank that failed first here; 83 if the ranks here only followed others;
84 if the infrastructure failed; 85 if a rank hung."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from tenuto.schemas.events.run import EXIT_CODE_FOLLOWED, EXIT_CODE_HUNG, EXIT_CODE_INFRASTRUCTURE
from tenuto.workers.endings import ENDINGS, LEFT_IN_ORDER, Ending
from tenuto.workers.launch.coordinator import TO_ALL, Coordinator
from tenuto.workers.launch.gang_errors import first_failure, say
from tenuto.workers.launch.hung_ranks import Ages, Watch
from tenuto.workers.launch.interfaces import named, on_interface
from tenuto.workers.launch.layout import GANG_VARIABLE, PROGRESS_FILE, RENDEZVOUS_FILE, GangPart
from tenuto.workers.launch.links import Links, dial, greet
from tenuto.workers.launch.memory_protection import become_private
from tenuto.workers.launch.messages import MESSAGE_BYTES_MAX, Message, decode, encode
from tenuto.workers.launch.progress import ProgressFile
from tenuto.workers.launch.ranks import ForkedRank, Rank, rank_environment, start_rank
from tenuto.workers.launch.token import TOKEN_VARIABLE, take_token

FOLLOW_SECONDS = 1.0
"""Wait before a rank that lost the others counts as the first failure: the end of the true first one is seen within
milliseconds, or not at all."""
STOP_SECONDS = 1.0
"""Time, after the first failure, for the other ranks to write their last lines; then they are killed. A checkpoint that rank 0
is storing is usually complete by then; with a slow store, the one before it counts."""
LEAVE_SECONDS_MAX = 30.0
"""Longest wait for the other ranks after rank 0 has left in order; they have nothing to save, and are then killed."""
LOOK_SECONDS = 0.5
"""Pause between checks of the ranks' progress."""
_OF_THE_AGENT = ("TENUTO_AGENT_ADDRESS", "TENUTO_ALLOCATION_ID", "TENUTO_RANK")
LOOK_PAUSES = 4
"""Number of pauses after which a late check shows that this process was stopped: the ranks may have been, too."""


class RankSupervisor:
    def __init__(self, part: GangPart, environment: Mapping[str, str], *, warm: bool) -> None:
        self._part, self._environment, self._warm = part, environment, warm
        self._ranks: dict[int, Rank] = {}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._coordinator = Coordinator(part.world_size)
        self._links = Links(part, self._from_link, self._link_lost)
        self._watch = Watch(part)
        self._failed: str | None = None
        """Error sentence, once something has failed."""
        self._code: int | None = None
        """Exit code of this process, once it is known."""
        self.ending: Ending = "failed"
        """Ending of the ranks here, once it is known."""
        self._store: Any = None
        self._done = asyncio.Event()

    def run(self) -> int:
        """Returns the exit code. Raises ForkedRank in a forked rank, OSError if the gang cannot be started."""
        part = self._part
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)  # the ranks' business
        store: socket.socket | None = None
        sockets: list[socket.socket] = []
        if part.leads:
            # Ports are opened before any rank starts, and stay open, so no other program can take one in between.
            store = _listen(part)
            sockets.append(store)
            master = (part.address, store.getsockname()[1])
            if len(part.agents) > 1:
                if not part.secret:
                    raise OSError("this gang over several agents has no secret, so any process could join it")
                listening = _listen(part)
                where = named(part.address, listening.getsockname()[1])
                sockets.append(self._links.serve(listening, part.secret, master, sockets))
                _write(Path(part.directory) / RENDEZVOUS_FILE, where)
        else:
            connection, master = greet(part, dial(part))
            sockets.append(self._links.connect(connection))
        self._progress = ProgressFile(Path(part.directory) / PROGRESS_FILE, part.local_size, create=True)
        for rank in part.ranks:
            environment = rank_environment(part, rank, self._environment, master)
            self._ranks[rank] = started = start_rank(part, rank, environment, warm=self._warm, close=sockets)
            sockets.append(started.channel)
        return asyncio.run(self._serve(store))

    async def _serve(self, store: socket.socket | None) -> int:
        tasks = [asyncio.create_task(self._watch_rank(rank)) for rank in self._ranks.values()]
        tasks += [asyncio.create_task(self._hear(rank)) for rank in self._ranks.values()]
        tasks.append(asyncio.create_task(self._look()))
        tasks.append(asyncio.create_task(self._links.run()))
        if store is not None:
            tasks.append(asyncio.create_task(self._open_store(store)))
        await self._done.wait()
        for rank in self._ranks.values():
            rank.kill()
        codes = ", ".join(f"rank {rank.rank}: {rank.code}" for rank in self._ranks.values())
        if self._failed is not None:
            say(f"exit codes of the ranks on this agent: {codes}")
        await self._links.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert self._code is not None
        return self._code

    async def _open_store(self, listening: socket.socket) -> None:
        """Opens the store through which torch's ranks find each other: on a port that the kernel chose, open before they
        start."""

        def make() -> Any:
            try:
                from torch.distributed import TCPStore  # type: ignore[attr-defined]
            except ImportError:  # ranks of another framework
                listening.close()
                return None
            address, port = listening.getsockname()[:2]
            return TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())

        # A warm process has torch imported, so this is quick; importing it takes seconds, in which messages must not wait.
        self._store = make() if self._warm else await asyncio.to_thread(make)

    # Messages of ranks.

    async def _hear(self, rank: Rank) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=rank.channel, limit=MESSAGE_BYTES_MAX)
        self._writers[rank.rank] = writer
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                message = decode(line)
                if message["op"] == "ending":  # this supervisor's business, wherever rank 0 is
                    rank.told = message["ending"] if message["ending"] in ENDINGS else None
                    writer.write(encode({"op": "ending_known"}))
                    continue
                self._from_rank(rank.rank, message)

    def _from_rank(self, rank: int, message: Message) -> None:
        if not self._part.leads:
            self._links.send_up({"op": "from", "rank": rank, "message": message})
            return
        for to, answer in self._coordinator.receive(rank, message):
            self._deliver(to, answer)

    def _deliver(self, to: int, message: Message) -> None:
        for rank, writer in self._writers.items():
            if to in (TO_ALL, rank) and not writer.is_closing():
                writer.write(encode(message))
        if self._part.leads and (to == TO_ALL or to not in self._part.ranks):
            self._links.send_down({"op": "to", "rank": to, "message": message})

    def _from_link(self, message: Message) -> None:
        match message["op"]:
            case "from":
                self._from_rank(message["rank"], message["message"])
            case "to":
                self._deliver(message["rank"], message["message"])
            case "progress":
                self._watch.note(message["ranks"])
            case "failed" | "stop":
                if self._failed is None:
                    self._links.send_down({"op": "stop", "sentence": message["sentence"]})
                    self._fail(message["sentence"], EXIT_CODE_FOLLOWED, "followed")
            case "hung":
                self._hung(message["rank"], message["sentence"])
            case "over":
                self._leave(message["code"], message["ending"])

    def _link_lost(self, sentence: str, *, silent: bool) -> None:
        """Notes a lost link. `silent`: the network is at fault; otherwise the other supervisor has ended, and its agent knows
        why."""
        if self._failed is None and self._code is None:
            if silent:
                self._fail(sentence, EXIT_CODE_INFRASTRUCTURE, "infrastructure")
            else:
                self._fail(sentence, EXIT_CODE_FOLLOWED, "followed")

    # Ends of ranks.

    async def _watch_rank(self, rank: Rank) -> None:
        code = await rank.wait()
        if self._failed is None and rank.told in LEFT_IN_ORDER:
            if rank.rank == 0:
                self._links.send_down({"op": "over", "code": code, "ending": rank.told})
                self._leave(code, rank.told)
        elif self._failed is None and self._code is None:
            # The cause may be a rank here that has ended, too, and is seen within a moment: it is the better report.
            if rank.told == "followed":
                await asyncio.sleep(FOLLOW_SECONDS)
            self._rank_failed(rank, code)
        if all(item.code is not None for item in self._ranks.values()) and self._code is not None:
            self._done.set()

    def _rank_failed(self, rank: Rank, code: int) -> None:
        if self._failed is None and self._code is None:
            sentence = first_failure(self._part, rank.rank, code, killed=rank.killed)
            self._fail(sentence, code, rank.told or ("killed" if rank.killed else "failed"))

    def _fail(self, sentence: str, code: int, ending: Ending) -> None:
        self._failed, self._code, self.ending = sentence, code, ending
        _write(Path(self._part.directory) / "error.txt", sentence)
        say(sentence.partition("\n")[0])
        self._links.send_up({"op": "failed", "sentence": sentence})
        self._links.send_down({"op": "stop", "sentence": sentence})
        self._kill_after(STOP_SECONDS)

    def _leave(self, code: int, ending: Ending) -> None:
        if self._code is None:
            self._code, self.ending = code, ending
            self._kill_after(LEAVE_SECONDS_MAX)
        if all(item.code is not None for item in self._ranks.values()):
            self._done.set()

    def _kill_after(self, seconds: float) -> None:
        def kill() -> None:
            for rank in self._ranks.values():
                # The code of rank 0 stands: a rank that is killed because it was slow to leave does not change the outcome.
                rank.kill()
            if all(item.code is not None for item in self._ranks.values()):
                self._done.set()

        asyncio.get_running_loop().call_later(seconds, kill)
        if all(item.code is not None for item in self._ranks.values()):
            self._done.set()

    # Ranks without progress.

    async def _look(self) -> None:
        ages = Ages(LOOK_PAUSES * LOOK_SECONDS, time.monotonic())
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            found = ages.look({rank: self._progress.read(index) for index, rank in enumerate(self._part.ranks)}, time.monotonic())
            running = {rank: age for rank, age in found.items() if self._ranks[rank].code is None}
            if not self._part.leads:
                self._links.send_up({"op": "progress", "ranks": running})
                continue
            self._watch.note(running)
            for straggler in self._watch.stragglers():
                say(straggler.sentence)
                self._deliver(0, {"op": "straggler", **asdict(straggler)})  # which reports it for the record
            hung = self._watch.hung()
            if hung is not None and self._failed is None and self._code is None:
                rank, sentence = hung
                self._links.send_down({"op": "hung", "rank": rank, "sentence": sentence})
                self._hung(rank, sentence)

    def _hung(self, rank: int, sentence: str) -> None:
        """Reports a hung rank. On its own agent this sentence is the first error; elsewhere that agent's report counts."""
        if self._failed is None and self._code is None:
            if rank in self._part.ranks:
                self._fail(sentence, EXIT_CODE_HUNG, "hung")
            else:
                self._fail(sentence, EXIT_CODE_FOLLOWED, "followed")


def _listen(part: GangPart) -> socket.socket:
    """Listens on a port that the kernel chooses. Raises OSError."""
    listening = socket.socket(socket.AF_INET6 if ":" in part.address else socket.AF_INET, socket.SOCK_STREAM)
    listening.bind((part.address, 0))
    listening.listen(4 * part.world_size)
    return listening


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text)
    os.replace(partial, path)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignores a signal by a handler and not by SIG_IGN, which ranks that are started anew would inherit."""


def main(work: Callable[[], NoReturn] | None = None) -> NoReturn:
    """`work`: run by ranks that are forked, in a process that has imported the framework. None: ranks are started anew."""
    become_private()
    part, environment = on_interface(GangPart.from_json(os.environ[GANG_VARIABLE])), dict(os.environ)
    with contextlib.suppress(KeyError):
        environment[TOKEN_VARIABLE] = take_token(environment)  # each rank gets it from here
    supervisor = RankSupervisor(part, environment, warm=work is not None)
    try:
        code = supervisor.run()
    except ForkedRank:
        code = None
    except (OSError, ValueError) as error:
        sentence = f"the ranks on agent {part.agent_id} could not be started: {error}"
        _write(Path(part.directory) / "error.txt", sentence)
        say(sentence)
        code, supervisor.ending = EXIT_CODE_INFRASTRUCTURE, "infrastructure"
    if code is None:
        assert work is not None
        work()
    _tell(supervisor.ending, environment)
    sys.stderr.flush()
    os._exit(code)


def _tell(ending: Ending, environment: Mapping[str, str]) -> None:
    """Tells the agent how the ranks here ended. If it is gone for good, this process ends as if it had been killed, which the
    next agent counts as a loss."""
    # Imported after the training: a supervisor that starts cold has no time for it before, and its ranks must not inherit it.
    from tenuto.kernel.clock import SystemClock
    from tenuto.workers.connection.agent_client import AgentClient
    from tenuto.workers.connection.directives import AgentGone

    address, allocation_id, rank = (environment[name] for name in _OF_THE_AGENT)
    client = AgentClient(address, environment.get(TOKEN_VARIABLE, ""), allocation_id, int(rank), SystemClock())
    try:
        client.end(ending)
    except AgentGone as error:
        say(str(error))
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
