"""A whole cluster of real processes, used as a user uses it: through `tenuto`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from tenuto.client import Client, Target
from tenuto.embedded.process import REST_PORTS
from tenuto.schemas.envelope import Event, decode_event
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE
from tests.support import commands
from tests.support.ports import own_port

ROOT = Path(__file__).parents[2]
TENUTO = Path(sys.executable).with_name("tenuto")
COMMAND_SECONDS_MAX = 240.0
WAIT_SECONDS_MAX = 240.0
"""Only a hang takes as long: the start of a gang, of workers that import torch, costs a crowded machine a minute."""
LATE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
"""Between two looks at this machine's own processes."""
ASK_SECONDS = 0.2
"""Between two questions to the cluster, most of which start a command: asking all the time would take the processors from what is
waited for."""
VICTIM_SECONDS_MAX = 180.0
"""A worker is there again some seconds after whatever was killed before."""
COLD = {"TENUTO_WARM_ENVIRONMENTS_MAX": "0"}
"""For agents whose trials import no framework, or that get none: nothing imports one ahead of need, which takes three seconds of
a processor."""
CONFINED = {"TENUTO_WORKER_CONFINED": "1"} if os.geteuid() == 0 else {}
"""For clusters of root, which would make an account for workers on a machine where it could be used, and that would stay."""
Done = subprocess.CompletedProcess[str]
T = TypeVar("T")


def tenuto(
    args: Sequence[str | Path],
    environment: Mapping[str, str],
    seconds_max: float = COMMAND_SECONDS_MAX,
    inside: Sequence[str] = (),
    *,
    forked_up: bool = False,
) -> Done:
    """A command to its end. Started as a user does where it starts processes that stay, or runs a user's code, for which nothing
    may be imported ahead. All others are forked from a process that has imported them; so is `up --detach` with `forked_up`, and
    the processes that it starts."""
    words = [*map(str, args)]
    env = {**CONFINED, **environment} if words[0] == "up" else environment
    other = _of_interpreter(env) != _of_interpreter(os.environ)
    if other or (words[0] == "up" and not forked_up) or words[0] in ("search", "automation") or "--local" in words or inside:
        command = [*inside, str(TENUTO), *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=seconds_max, check=False)
    return commands.run(words, env, seconds_max)


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that it reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


class Node:
    """A machine with one agent."""

    def __init__(self, agent: psutil.Popen) -> None:
        self._agent = agent

    def die(self) -> None:
        """Kills the agent and all its processes at once, as a power failure does."""
        everything: set[psutil.Process] = set()
        while new := {self._agent, *self._agent.children(recursive=True)} - everything:
            for process in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()  # else one would see another's end, or start one more
            everything |= new
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class LiveCluster:
    """One data directory. `up` starts it, `down` stops it; `kill` ends one of its processes with SIGKILL."""

    def __init__(
        self, directory: Path, cpu_slots: int = 2, inside: tuple[str, ...] = (), *, warm: bool = True, forked_up: bool = True
    ) -> None:
        """`inside`: a command that runs `tenuto up`, in a mount namespace for example. `warm`: False for trials without a
        framework, see COLD. `forked_up`: False where its start is as for any user, see `tenuto`."""
        self.directory, self.cpu_slots, self._inside, self._forked_up = directory, cpu_slots, inside, forked_up
        self.environment = {**os.environ, "TENUTO_DATA_DIRECTORY": str(directory), **({} if warm else COLD)}
        self.told_at_start = ""
        self._has_port = False
        self._events: list[Event] = []
        """Events that were read already: an event never changes, and tests ask for all of them again and again."""

    def cli(
        self,
        *args: str | Path,
        check: bool = True,
        seconds_max: float = COMMAND_SECONDS_MAX,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """`more`: variables of this command alone."""
        inside = self._inside if args[0] == "up" else ()
        done = tenuto(args, self.environment | dict(more or {}), seconds_max, inside, forked_up=self._forked_up)
        if check and done.returncode != 0:
            raise AssertionError(f"tenuto {' '.join(map(str, args))} left with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def json(self, *args: str | Path) -> Any:
        return json.loads(self.cli(*args, "--json").stdout)

    def up(self, *options: str) -> None:
        """Starts the cluster. If that fails, no process of it is left."""
        if not self._has_port and "--port" not in options:
            # One of its own, which it keeps: before a second `up` another cluster may take the usual one.
            options, self._has_port = (*options, "--port", str(own_port(REST_PORTS))), True
        try:
            self.told_at_start = self.cli("up", "--detach", "--cpu-slots", str(self.cpu_slots), *options).stderr
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        self.cli("down", check=False)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @contextlib.contextmanager
    def listening(self, address: str) -> Iterator[Self]:
        """Up, and reached at that address with TLS, too."""
        self.up("--listen", address)
        try:
            yield self
        finally:
            self.down()

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.directory / "cluster.json").read_text())
        return state

    def pid(self, name: str) -> int:
        pid: int = self.state()["processes"][name]["pid"]
        return pid

    def workers(self) -> list[psutil.Process]:
        """The training processes: not the leaders of their sessions, nor what they start themselves."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                mark = process.environ().get(RUN_VARIABLE, "")
                if mark.startswith(f"{self.directory.resolve()}/") and process.ppid() == os.getsid(process.pid):
                    found.append(process)
        return found

    def warm_processes(self) -> list[psutil.Process]:
        """Processes from which workers are forked."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                ours = environment.get("TENUTO_CLUSTER_DIRECTORY") == str(self.directory.resolve())
                if ours and environment.get(RUN_VARIABLE, "").startswith("-"):
                    found.append(process)
        return found

    def kill(self, name: str, meanwhile: Callable[[], object] | None = None) -> None:
        """SIGKILL to a process of the cluster, to a running worker, to what workers are forked from (`warm`), or to NATS with the
        loss of its disk (`nats+disk`). `meanwhile` is called as long as there is no such worker."""
        if name in ("worker", "warm"):
            find = self.workers if name == "worker" else self.warm_processes
            deadline = time.monotonic() + VICTIM_SECONDS_MAX
            while not (found := find()):
                assert time.monotonic() < deadline, f"there was no {name} to kill; the last events:\n{self.tail()}"
                if meanwhile is not None:
                    meanwhile()
                time.sleep(POLL_SECONDS)
            with contextlib.suppress(psutil.NoSuchProcess):
                found[0].kill()
            return
        if name == "nats+disk":
            with self._supervisor_stopped():
                os.kill(self.pid("nats"), signal.SIGKILL)
                psutil.wait_procs([psutil.Process(self.pid("nats"))] if psutil.pid_exists(self.pid("nats")) else [], timeout=5)
                for store in (self.directory / "nats").rglob("jetstream"):
                    shutil.rmtree(store, ignore_errors=True)
            return
        os.kill(self.pid(name), signal.SIGKILL)

    @contextlib.contextmanager
    def _supervisor_stopped(self) -> Iterator[None]:
        """Stops the supervisor for a while, so that it does not restart the server before its disk has been removed."""
        supervisor = self.state()["supervisor_pid"]
        os.kill(supervisor, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(supervisor, signal.SIGCONT)

    @contextlib.contextmanager
    def another_agent(self, name: str, cpu_slots: int = 1, *, inside: tuple[str, ...] = (), **variables: str) -> Iterator[Node]:
        """One more agent, as on another machine: with a directory of its own, and the cluster's shared one. `inside`: a command
        that runs it."""
        directory = self.directory.with_name(f"{self.directory.name}-{name}")
        own = dict(line.split("=", 1) for line in self.cli("agent", "credentials", name).stdout.splitlines())
        node = psutil.Popen(
            [*inside, sys.executable, "-m", "tenuto.workers.agent"],
            env={
                **psutil.Process(self.pid("agent")).environ(),
                **own,
                "TENUTO_AGENT_DIRECTORY": str(directory),
                "TENUTO_CPU_SLOTS": str(cpu_slots),
                **variables,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Node(node)
        finally:
            node.terminate()
            node.wait(COMMAND_SECONDS_MAX)

    def refused_on_the_bus(self, stranger: str = "") -> list[str]:
        """Permission violations in the server's log. There must be none by our own processes, for the whole life of a cluster:
        a process that lacks a right often gets no error, only no answer. `stranger`: name of the connections that a test made;
        theirs are included."""
        logs = [*(self.directory / "nats").glob("nats.log*"), *(self.directory / "logs").glob("*.log*")]  # also older ones
        lines = [f"{log.name}: {line}" for log in logs for line in log.read_text(errors="replace").splitlines()]
        refused = [line for line in lines if "violation" in line.lower()]
        return [line for line in refused if not stranger or f':{stranger}"' not in line]

    def check_bus(self) -> None:
        """At the end of a test: all had the rights that they needed, and the bus holds what the database does (once the relay has
        made the stream anew that a test has lost)."""
        verdict = self.once(lambda: self.json("log", "verify"), lambda found: not found["unchecked"])
        assert (verdict["tampered"], verdict["unchecked"]) == (None, [])
        assert self.refused_on_the_bus() == []

    def client(self) -> Client:
        return Client(Target.find(str(self.directory), None))

    def events(self, after: int = 0) -> list[Event]:
        """Events after that position, up to the present head."""
        if after:
            return [decode_event(body) for body in self.client().event_bodies(after)]
        read = self._events[-1].position if self._events else 0
        self._events += [decode_event(body) for body in self.client().event_bodies(read)]
        return [*self._events]

    def tail(self, count: int = 20) -> str:
        """The last events of the record in a line each, for the message of a test that failed."""
        try:
            return "\n".join(f"{event.type} {event.stream}" for event in self.events()[-count:])
        except Exception as error:
            return f"(not to be had: {error!r})"

    def wait_for(self, what: Callable[[], bool], seconds_max: float = WAIT_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds_max
        while not what():
            assert time.monotonic() < deadline, f"it did not come within {seconds_max} s; the last events:\n{self.tail()}"
            time.sleep(ASK_SECONDS)

    def once(self, get: Callable[[], T], holds: Callable[[T], bool]) -> T:
        """The first value of `get` for which `holds` is true, or its last value at the time limit. Log lines and metrics are
        stored apart from the events, and may arrive after the event that ends their trial."""
        deadline = time.monotonic() + LATE_SECONDS_MAX
        while not holds(found := get()) and time.monotonic() < deadline:
            time.sleep(ASK_SECONDS)
        return found

    def log(self, what: str, *words: str, kind: str = "exp") -> str:
        """The log of an experiment (or, by `kind`, a trial) once it contains these words, or at the time limit as it is."""
        return self.once(lambda: self.cli(kind, "logs", what).stdout, lambda said: all(word in said for word in words))

    def wait_events(self, after: int, count: int, seconds_max: float = WAIT_SECONDS_MAX) -> int:
        """Waits until `count` events after position `after` are recorded; returns the head. The cluster may be unreachable for a
        while."""
        deadline = time.monotonic() + seconds_max
        problem: BaseException | None = None
        while time.monotonic() < deadline:
            try:
                head = int(self.client().get("/status")["head"])
                if head >= after + count:
                    return head
            except Exception as error:
                problem = error
            time.sleep(ASK_SECONDS)
        said = f"no {count} new events after {after} within {seconds_max} s (last problem: {problem!r})"
        raise AssertionError(f"{said}; the last events:\n{self.tail()}")
