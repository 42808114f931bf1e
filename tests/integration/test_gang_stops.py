"""Supervisors and nodes that are stopped for a while, and machines that are overloaded: only who was really silent is lost."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tenuto.workers.launch.keeper import STRANGERS_MAX
from tenuto.workers.launch.layout import GangPart
from tenuto.workers.launch.messages import LineReader, Message, encode
from tenuto.workers.launch.process_clock import ObserverClock
from tests.support.gang_bench import GangBench, ranked_bench, wait_held
from tests.support.reactions import stop_at

LINK_SECONDS_MAX = 3.0
HYPERPARAMETERS = {"random": True, "noise": 0.1, "batch": 9}
COMPUTING = 24
"""Processes that compute beside the gang: the load that was seen to end gangs."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[GangBench]:
    with ranked_bench(tmp_path, HYPERPARAMETERS, distributed={"link_seconds_max": LINK_SECONDS_MAX}) as found:
        yield found


@contextlib.contextmanager
def stopped(*processes: psutil.Process) -> Iterator[None]:
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def test_supervisors_that_are_stopped_for_longer_than_the_deadline_cost_nothing(bench: GangBench, tmp_path: Path) -> None:
    """Their ranks train on, and another process keeps the link."""
    held, go = tmp_path / "held", tmp_path / "go"
    agent, runs = bench.gang(1, 24, nodes=2, TEST_ACT="hold 0 2", TEST_HELD=str(held), TEST_GO=str(go))
    agent.react = stop_at(24)
    wait_held(held, runs)
    with stopped(*(run.supervisor() for run in runs)):
        time.sleep(3 * LINK_SECONDS_MAX)
    go.touch()
    assert [run.wait() for run in runs] == [0, 0], "\n".join(run.output() for run in runs)


def test_a_node_that_stands_still_is_lost_only_beyond_the_deadline_and_named_by_the_other(
    bench: GangBench, tmp_path: Path
) -> None:
    held, go = tmp_path / "held", tmp_path / "go"
    _, runs = bench.gang(1, 24, nodes=2, TEST_ACT="hold 0 2", TEST_HELD=str(held), TEST_GO=str(go))
    wait_held(held, runs)
    first, second = runs
    with stopped(*second.processes()):
        time.sleep(LINK_SECONDS_MAX / 3)
    with stopped(*first.processes(), *second.processes()):
        time.sleep(3 * LINK_SECONDS_MAX)  # as when both are frozen with their machine: nobody has missed anything
    time.sleep(LINK_SECONDS_MAX)
    assert [run.process.poll() for run in runs] == [None, None], "\n".join(run.output() for run in runs)
    with stopped(*second.processes()):
        assert first.wait() == 84, first.output()
    assert first.error.startswith(
        "agent second could not be reached by agent first over the network for 3 s: nothing came since "
    )
    assert second.wait() == 83, second.output()
    assert second.error == first.error


COMPUTE = (sys.executable, "-c", "while True: sum(range(100_000))")


def test_a_gang_over_two_nodes_trains_beside_many_processes_that_compute(bench: GangBench, tmp_path: Path) -> None:
    """The machine has a processor for it now and then only. Held before deadlines are learnt: so long in a step is a hang."""
    held, go = tmp_path / "held", tmp_path / "go"
    agent, runs = bench.gang(1, 24, nodes=2, TEST_ACT="hold 0 2", TEST_HELD=str(held), TEST_GO=str(go))
    agent.react = stop_at(24)
    wait_held(held, runs)
    # Started anew, not forked: in a fork of this process, which has threads and gRPC, anything may fail.
    others = [subprocess.Popen(COMPUTE) for _ in range(COMPUTING)]
    try:
        time.sleep(3 * LINK_SECONDS_MAX)
        go.touch()
        assert [run.wait() for run in runs] == [0, 0], "\n".join(run.output() for run in runs)
        assert [other.poll() for other in others] == [None] * COMPUTING, "they computed to the end"
    finally:
        for other in others:
            other.kill()
            other.wait()


KEEPER = """
import socket, sys
from tenuto.workers.launch.keeper import LinkKeeper
from tenuto.workers.launch.layout import GangPart
supervisor, listening = (socket.socket(fileno=int(number)) for number in sys.argv[2:])
LinkKeeper(GangPart.from_json(sys.argv[1]), supervisor, listening=listening, secret="s", master=("h", 1)).run()
"""


class Peer:
    """The keeper of rank 0's part, its supervisor and the part of another agent, played by the test."""

    def __init__(self) -> None:
        part = GangPart("1-1-1", (("first", 1), ("second", 1)), 0, "/nowhere", "127.0.0.1", link_seconds_max=4.0)
        self.supervisor, theirs = socket.socketpair()
        with theirs, socket.create_server(("127.0.0.1", 0)) as listening:
            self.where = listening.getsockname()
            numbers = (theirs.fileno(), listening.fileno())
            command = [sys.executable, "-c", KEEPER, part.to_json(), *map(str, numbers)]
            self.keeper = subprocess.Popen(command, pass_fds=numbers)
        self.supervisor.settimeout(30)
        self.told = LineReader(self.supervisor)
        self.open = contextlib.ExitStack()

    def connect(self, secret: str = "s", index: object = 1) -> tuple[socket.socket, Message | None]:
        connection = self.open.enter_context(socket.create_connection(self.where, timeout=30))
        hello = {"op": "hello", "allocation_id": "1-1-1", "agent_index": index, "secret": secret}
        connection.sendall(encode(hello))
        return connection, LineReader(connection).read()


@pytest.fixture
def peer() -> Iterator[Peer]:
    found = Peer()
    try:
        yield found
    finally:
        found.open.close()
        found.supervisor.close()
        assert found.keeper.wait(30) == 0, "it ends with its supervisor"


def test_the_keeper_lets_in_nobody_but_the_gang_and_hands_its_words_on(peer: Peer) -> None:
    for strange in ("x", "\0"):
        assert peer.connect(strange)[1] is None
    for index in (0, 2, "one", None):
        assert peer.connect(index=index)[1] is None
    connection, welcome = peer.connect()
    assert welcome == {"op": "welcome", "host": "h", "port": 1}
    assert peer.connect()[1] is None, "it is here already"
    connection.sendall(encode({"op": "lost", "sentence": "a lie", "silent": True}) + encode({"op": "progress", "ranks": {}}))
    assert peer.told.read() == {"op": "progress", "ranks": {}}
    peer.supervisor.sendall(encode({"op": "stop", "sentence": "all"}))
    heard = LineReader(connection)
    assert [heard.read() for _ in range(2)].count({"op": "stop", "sentence": "all"}) == 1
    assert heard.read() == {"op": "beat"}
    connection.close()
    assert peer.told.read() == {"op": "lost", "sentence": "the ranks on agent second have gone", "silent": False}


@pytest.mark.parametrize(
    "said",
    [
        b'{"op":"hello","allocation_id":"1-1-1","agent_index":1e999,"secret":"x"}\n',
        b'{"op":"hello","allocation_id":"1-1-1","agent_index":1e999,"secret":"s"}\n',
        b'{"op":"hello","allocation_id":"1-1-1","agent_index":1,"secret":"\\ud800"}\n',
        b"[" * 1_000 + b"\n",
        b"[" * 50_000 + b"\n",
        b"x" * 2_000,
        b"\xff\xfe\n",
        b"[]\n",
    ],
    ids=["no number", "no number, with the secret", "no text", "deep", "deep and long", "no line", "no UTF-8", "no object"],
)
def test_nothing_that_a_stranger_says_ends_the_keeper(peer: Peer, said: bytes) -> None:
    stranger = peer.open.enter_context(socket.create_connection(peer.where, timeout=30))
    with contextlib.suppress(OSError):  # it may be closed before all is said
        stranger.sendall(said)
        assert stranger.recv(1) == b""
    assert peer.connect()[1] == {"op": "welcome", "host": "h", "port": 1}


def test_strangers_that_take_all_places_do_not_keep_the_gang_out(peer: Peer) -> None:
    for _ in range(STRANGERS_MAX):
        peer.open.enter_context(socket.create_connection(peer.where, timeout=30))
    assert peer.connect()[1] == {"op": "welcome", "host": "h", "port": 1}


def test_strangers_that_trickle_do_not_hold_their_places(peer: Peer) -> None:
    """A place is for who says in time who it is, however much else it says."""
    stranger = peer.open.enter_context(socket.create_connection(peer.where, timeout=30))
    stranger.settimeout(0.5)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            stranger.sendall(b"x")
            if not stranger.recv(1):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        pytest.fail("it still has its place")
    assert peer.connect()[1] == {"op": "welcome", "host": "h", "port": 1}


def test_a_keeper_that_was_stopped_itself_reads_what_came_before_it_judges(peer: Peer) -> None:
    connection, _ = peer.connect()
    keeper = psutil.Process(peer.keeper.pid)
    with stopped(keeper):
        for _ in range(5):  # longer than the deadline
            time.sleep(1)
            connection.sendall(encode({"op": "beat"}))
    connection.sendall(encode({"op": "over", "code": 0}))
    assert peer.told.read() == {"op": "over", "code": 0}
    with stopped(keeper):
        time.sleep(5)
    told = peer.told.read()
    assert told is not None
    assert told["silent"]
    assert "agent second could not be reached by agent first over the network for 4 s" in told["sentence"]
    assert "agent first itself was stopped for" in told["sentence"], json.dumps(told)


def test_the_observers_clock_counts_what_it_could_observe() -> None:
    clock = ObserverClock(0.5, 10.0)
    for now in (10.2, 10.4, 70.4, 70.2, 70.9):
        clock.tick(now)
    assert clock.seconds == pytest.approx(0.2 + 0.2 + 0.5 + 0.0 + 0.5)
    assert clock.lag_seconds == pytest.approx(59.5 + 0.2)
