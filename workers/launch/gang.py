"""A rank's side of its gang: agreements between all ranks, made through their supervisors (tenuto.workers.launch)."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tenuto.workers.connection.directives import WAIT_SECONDS_MAX, AgentGone, Directive, DirectiveBox
from tenuto.workers.endings import Ending
from tenuto.workers.launch.layout import CHANNEL_VARIABLE, PROGRESS_VARIABLE
from tenuto.workers.launch.messages import LineReader, Message, encode
from tenuto.workers.launch.progress import ProgressFile, ProgressWriter


class Gang:
    """One rank's place in the gang, and its connection to the other ranks. Thread-safe."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.rank, self.world_size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        self.local_rank, self.local_size = int(environment["LOCAL_RANK"]), int(environment["LOCAL_WORLD_SIZE"])
        self.progress = ProgressWriter(ProgressFile(Path(environment[PROGRESS_VARIABLE]), self.local_size), self.local_rank)
        self._socket = socket.socket(fileno=int(environment[CHANNEL_VARIABLE]))
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._values: dict[int, Any] = {}
        self._gathered: dict[str, list[Any]] = {}
        self._numbers = itertools.count(1)
        self._calls = itertools.count(1)
        self.on_straggler: Callable[[Message], None] | None = None
        """Rank 0: callback, in the listening thread, about a slow rank (`watching.Straggler`)."""
        self._box: GangBox | None = None
        self._early: list[Message] = []
        """Messages for the box that arrived before it existed."""
        self._ending_known = threading.Event()
        self._process_id = os.getpid()
        threading.Thread(target=self._listen, name="tenuto-gang", daemon=True).start()

    @classmethod
    def join(cls, environment: Mapping[str, str] | None = None) -> Gang | None:
        """The gang of this process; None if it is no rank."""
        environment = os.environ if environment is None else environment
        return cls(environment) if CHANNEL_VARIABLE in environment else None

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def gather(self, value: Any, purpose: str = "") -> list[Any]:
        """Value of each rank, in rank order: plain JSON. Every rank must call it, in the same order; it takes about a
        millisecond."""
        return self.meet(f"{next(self._calls)}/{purpose}", value)

    def meet(self, tag: str, value: Any) -> list[Any]:
        """Like `gather`, from any thread and in any order: each rank calls it, or `say`, once with this tag."""
        self.say(tag, value)
        with self._changed:
            while tag not in self._gathered:
                self._changed.wait()
            return self._gathered.pop(tag)

    def say(self, tag: str, value: Any) -> None:
        """Sends this rank's part in a `meet`, without waiting for the others. If they never meet, it is lost."""
        self.send({"op": "gather", "tag": tag, "value": value})

    def put(self, key: str, value: Any) -> None:
        """Publishes a value for `get` on the other ranks: plain JSON, such as an address."""
        self.send({"op": "put", "key": key, "value": value})

    def get(self, key: str) -> Any:
        """Value of a key; waits until a rank has put it."""
        number = next(self._numbers)
        self.send({"op": "get", "key": key, "id": number})
        with self._changed:
            while number not in self._values:
                self._changed.wait()
            return self._values.pop(number)

    def send(self, message: Message) -> None:
        # Several threads send; a line of one must not be cut by another's.
        with self._sending:
            try:
                self._socket.sendall(encode(message))
            except OSError:
                self._die()

    def tell_ending(self, ending: Ending) -> None:
        """Tells the supervisor how this rank ends, and returns when it knows: the end of the process may overtake a message."""
        self.send({"op": "ending", "ending": ending})
        self._ending_known.wait()

    def open_box(self, first: Directive) -> GangBox:
        """Box with the same first directive on all ranks: that of rank 0."""
        action, target_length = self.gather([first.action, first.target_length], "first directive")[0]
        box = GangBox(Directive(action, target_length), self)
        # Under the lock of the listening thread, so that no message is lost between the box and the early ones.
        with self._changed:
            self._box, early = box, self._early
            for message in early:
                box.receive(message)
        return box

    def _listen(self) -> None:
        reader = LineReader(self._socket)
        while True:
            try:
                message = reader.read()
            except (OSError, ValueError):
                message = None
            if message is None:
                self._die()
                return
            if message["op"] == "ending_known":
                self._ending_known.set()
                continue
            if message["op"] == "straggler":
                if self.on_straggler is not None:
                    self.on_straggler(message)
                continue
            with self._changed:
                match message["op"]:
                    case "gathered":
                        self._gathered[message["tag"]] = message["values"]
                    case "value":
                        self._values[message["id"]] = message["value"]
                    case _ if self._box is None:
                        self._early.append(message)
                    case _:
                        self._box.receive(message)
                self._changed.notify_all()

    def _die(self) -> None:
        """Ends the process: without its supervisor a rank belongs to no gang."""
        # Only in the rank itself: a forked data-loader worker that inherited the socket must not kill itself.
        if os.getpid() == self._process_id:
            os.kill(os.getpid(), signal.SIGKILL)


class GangBox(DirectiveBox):
    """The directive that all ranks have agreed on: it changes at the same boundary on each. A boundary is a call of `differs`,
    which all ranks must make equally often.

    Only rank 0 is connected to its agent: directives `put` there are proposed to the others.
    """

    def __init__(self, first: Directive, gang: Gang) -> None:
        super().__init__(first)
        self._gang = gang
        self._proposed = first
        self._passed = 0
        """Number of boundaries passed."""
        self._hold: int | None = None
        """Boundary that must not be passed before the decision is known. None: no decision is under way."""
        self._decided: deque[Message] = deque()
        self._last_at = 0
        self._due = False
        self._asked_end = False
        """True: this rank has asked the others to end the training, and waits for the decision."""
        self.ending: str | None = None
        """Reason for which all ranks end the training at this boundary, as one of them asked. None: they go on."""

    # Calls of rank 0's agent, and of signal handlers.

    def put(self, directive: Directive) -> None:
        if not self._gang.leads:
            return
        with self._changed:
            # After a request to leave, the agent's later `run` is ignored, as in the box of a single process.
            if directive == self._proposed or (self._held and not directive.leave):
                return
            self._proposed = directive
        self._propose(directive)

    def leave(self, action: Any) -> None:
        """Called in a signal handler: no lock may be taken here, so a thread does the rest."""
        threading.Thread(target=self._leave, args=(action,), daemon=True).start()

    def _leave(self, action: Any) -> None:
        if not self._gang.leads:
            self._gang.send({"op": "leave", "action": action})
            return
        with self._changed:
            if self._held:
                return
            self._held, self._proposed = True, Directive(action, self._proposed.target_length)
        self._propose(self._proposed)

    def _propose(self, directive: Directive) -> None:
        self._gang.send({"op": "propose", "action": directive.action, "target_length": directive.target_length})

    def ask_save(self) -> None:
        """Rank 0: asks all ranks to save at the next boundary that they agree on."""
        self._gang.send({"op": "propose", "save": True})

    def ask_end(self, reason: str) -> None:
        """Asks all ranks to end the training at the next boundary. This one waits at its present boundary until that is decided;
        ranks that train in step are at this one, too, or on their way to the next: so all end one step later, however long the
        messages take."""
        if not self._asked_end:
            self._asked_end = True
            self._gang.send({"op": "propose", "end": reason})

    def take_save(self) -> bool:
        """True if all ranks are to save at this boundary."""
        due, self._due = self._due, False
        return due

    # Messages of the supervisor.

    def receive(self, message: Message) -> None:
        match message["op"]:
            case "ask":
                with self._changed:
                    # Not before the last decision's boundary: ranks must apply decisions in the same order.
                    at = self._hold = max(self._passed + 1, self._last_at)
                self._gang.send({"op": "hold", "n": message["n"], "at": at})
            case "decided":
                with self._changed:
                    self._decided.append(message)
                    self._last_at = message["at"]
                    self._hold = None
                    self._changed.notify_all()
            case "leave":
                self._leave(message["action"])

    # Calls of the training thread.

    def differs(self, seen: Directive) -> bool:
        with self._changed:
            self._passed += 1
            while self._asked_end and not self._end_decided and self._gone is None:
                self._changed.wait(WAIT_SECONDS_MAX)
            # The rank waits here until the coordinator has decided, because it may be the one that all wait for.
            while self._hold is not None and self._passed >= self._hold and self._gone is None:
                self._changed.wait(WAIT_SECONDS_MAX)
            self._apply(self._passed)
            return self._due or self.ending is not None or self._current is not seen or self._gone is not None

    @property
    def _end_decided(self) -> bool:
        return self.ending is not None or any("end" in message for message in self._decided)

    def wait_change(self, seen: Directive) -> Directive:
        """Waits for a change. All ranks wait at the same boundary, so a decision applies at once."""
        with self._changed:
            while self._current is seen and self._gone is None:
                self._apply(None)
                if self._current is seen:
                    self._changed.wait(WAIT_SECONDS_MAX)
            if self._gone is not None:
                raise AgentGone(self._gone)
            return self._current

    def _apply(self, boundary: int | None) -> None:
        """Applies decisions up to this boundary. None: all decisions."""
        while self._decided and (boundary is None or self._decided[0]["at"] <= boundary):
            message = self._decided.popleft()
            if message.get("save"):
                self._due = True
            elif "end" in message:
                self.ending = message["end"] if self.ending is None else self.ending
            else:
                self._current = Directive(message["action"], message["target_length"])
