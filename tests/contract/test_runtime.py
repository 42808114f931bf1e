"""Contract of runtimes, checked on each of them. Workers are scripts here, which share their model directory with the test.

Long, because it is one contract: a test for each promise of `workers/agent/runtimes/runtime.py`."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tenuto.schemas.config.environment import Environment
from tenuto.schemas.events.pool import AgentSlots
from tenuto.workers.agent.runtimes import forks
from tenuto.workers.agent.runtimes.runtime import Exit, Handle, Runtime, Work
from tests.support import podman_service
from tests.support.control_plane import AGENT, make_assignment, make_config
from tests.support.docker_daemon import lack
from tests.support.runtimes import (
    DOCKER_URL,
    KINDS,
    OF_A_BATCH_JOB,
    SECRET_OF_THE_AGENT,
    SLOTS,
    TOKEN,
    gang_work_of,
    make_runtime,
    shell,
    work_of,
)
from tests.support.waiting import SECONDS_MAX

ROOT = Path(__file__).parents[2]
WAITS = "echo here; while [ ! -e now ]; do sleep 0.05; done; "
"""Shell command that waits until the test creates the file `now`."""
OF_EXEC = re.compile(r"E\d{4} .*thd\.cc:\d+\] pthread_create failed: .*")
"""Line of gRPC in a waiting worker that becomes another program, as only tests have it: Linux refuses threads during an exec."""
LEAVES_OTHERS = "setsid sleep 600 >/dev/null 2>&1 & (setsid sh -c 'sleep 600; :' &) ; "
LOOKS_AROUND = """
import json, os
before = dict(os.environ)
import grpc
from tenuto.workers.launch.token import take_token
grpc.channel_ready_future(grpc.insecure_channel(before["TENUTO_AGENT_ADDRESS"])).result(60)
open(os.path.join(before["TMPDIR"], "left-behind"), "w").close()
print("seen " + json.dumps({"environment": before, "token": take_token(os.environ), "directory": os.getcwd()}), flush=True)
"""


def without_exec(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not OF_EXEC.fullmatch(line)]


class Bench:
    """Runtimes that follow each other on one directory, as agents do."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind, self.directory, self.context = kind, directory, directory / "agent" / "contexts" / ("0" * 64)
        self.context.mkdir(parents=True)
        self.runtime: Runtime = make_runtime(kind, directory, shell("exit 0"))

    async def open(self, *command: str) -> Runtime:
        """The next one, after the last has let go. `command`: what its workers run."""
        await self.runtime.close()
        self.runtime = make_runtime(self.kind, self.directory, command)
        await self.runtime.open()
        return self.runtime

    async def begin(self, work: Work | None = None) -> Handle:
        work = work or work_of(self.context)
        await self.runtime.prepare(work)
        handle = await self.runtime.start(work)
        await self.runtime.go(handle)
        return handle

    async def wait(self, handle: Handle, allocation_id: str = "1-1-1") -> Exit:
        async with asyncio.timeout(SECONDS_MAX):
            return await self.runtime.wait(allocation_id, handle)

    def say_now(self) -> None:
        (self.context / "now").touch()

    async def printed(self, allocation_id: str = "1-1-1", rank: int | None = None) -> tuple[list[str], list[str]]:
        """All of it, when the worker has ended, without OF_EXEC."""
        out: list[str] = []
        err: list[str] = []
        offsets = (0, 0)
        while True:
            found = await self.runtime.output(allocation_id, rank, offsets, final=True)
            if found.offsets == offsets:
                return out, without_exec(err)
            out, err, offsets = [*out, *found.stdout], [*err, *found.stderr], found.offsets

    async def until_printed(self, line: str, allocation_id: str = "1-1-1", rank: int | None = None) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while line not in (await self.runtime.output(allocation_id, rank, (0, 0), final=False)).stdout:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


LACKS = {
    "docker": pytest.mark.real_part(lack()),
    "docker-warm": pytest.mark.real_part(lack()),
    "podman": pytest.mark.real_part(podman_service.lack(), installable=False),
}


@pytest.fixture(scope="session")
def podman() -> Iterator[podman_service.Podman]:
    with podman_service.service() as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


PARAMETERS = [pytest.param(kind, marks=[LACKS[kind]] if kind in LACKS else []) for kind in KINDS]


@pytest.fixture(params=PARAMETERS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    if request.param in LACKS:
        engine = "podman" if request.param == "podman" else "docker_daemon"
        monkeypatch.setenv(DOCKER_URL, request.getfixturevalue(engine).url)
    monkeypatch.setattr(forks, "FORK_SECONDS_MAX", SECONDS_MAX)  # on a busy machine a late fork is a cold start, rightly
    bench = Bench(request.param, tmp_path)
    yield bench
    left = [allocation_id for allocation_id in await bench.runtime.find() if not await bench.runtime.kill_all(allocation_id)]
    await bench.runtime.close()
    assert not left


async def test_slots_have_numbers_of_their_own(bench: Bench) -> None:
    await bench.open(*shell("exit 0"))
    assert len({slot.slot_id for slot in bench.runtime.slots}) == len(bench.runtime.slots) == len(SLOTS)


async def test_a_run_from_its_start_to_its_end(bench: Bench) -> None:
    runtime = await bench.open(*shell(WAITS + "echo done; echo oh >&2; exit 7"))
    work = work_of(bench.context)
    await runtime.prepare(work)
    handle = await runtime.start(work)
    assert (await bench.printed()) == ([], []), "nothing runs before its go"
    await runtime.go(handle)
    await bench.until_printed("here")
    assert list(await runtime.find()) == ["1-1-1"]
    bench.say_now()
    ended = await bench.wait(handle)
    assert replace(ended, last_lines=tuple(without_exec(ended.last_lines))) == Exit(7, "", ("oh",))
    assert await bench.printed() == (["here", "done"], ["oh"])
    assert await runtime.find() == {}
    assert (await bench.wait(handle)).code == 7, "it may be asked again"


async def test_two_runs_are_apart(bench: Bench) -> None:
    runtime = await bench.open(*shell(f"if [ $TENUTO_ALLOCATION_ID = 1-1-1 ]; then exit 0; fi; {WAITS}exit 4"))
    first = await bench.begin()
    second = await bench.begin(work_of(bench.context, make_assignment("0" * 64, trial=2, slots=(1,))))
    assert first != second
    await bench.wait(first)
    await runtime.kill(first)
    assert await runtime.kill_all("1-1-1")
    await runtime.clean("1-1-1")
    await bench.until_printed("here", "1-2-1")
    assert list(await runtime.find()) == ["1-2-1"], "what is done to the first is not done to the second"
    bench.say_now()
    assert (await bench.wait(second, "1-2-1")).code == 4
    assert await bench.printed("1-2-1") == (["here"], [])


async def test_what_is_abandoned_runs_nothing(bench: Bench) -> None:
    runtime = await bench.open(*shell("echo here"))
    work = work_of(bench.context)
    await runtime.prepare(work)
    handle = await runtime.start(work)
    await runtime.abandon(handle)
    assert await bench.wait(handle) == Exit(None)
    assert (await bench.printed(), await runtime.find()) == (([], []), {})


async def test_where_the_agent_dies_before_the_go_nothing_runs(bench: Bench) -> None:
    await bench.open(*shell("echo here"))
    command = ("-m", "tests.support.runtimes", bench.kind, str(bench.directory), str(bench.context), "echo here")
    agent = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    said, _ = await agent.communicate()
    assert agent.returncode == -signal.SIGKILL
    handle = Handle(said.decode().strip())
    assert await bench.wait(handle) == Exit(None)
    for handles in (await bench.runtime.find()).values():
        for found in handles:
            await bench.runtime.kill(found)
    assert await bench.runtime.kill_all("1-1-1")
    assert await bench.printed() == ([], [])


async def test_workers_outlive_the_agent(bench: Bench) -> None:
    await bench.open(*shell(WAITS + "echo done; exit 5"))
    handle = await bench.begin()
    await bench.until_printed("here")
    runtime = await bench.open(*shell("exit 0"))
    assert list(await runtime.find()) == ["1-1-1"]
    await runtime.sweep({"1-1-1"})
    bench.say_now()
    assert (await bench.wait(handle)).code == 5
    runtime = await bench.open(*shell("exit 0"))
    assert (await bench.wait(handle)).code == 5, "also where it ended while no agent was there"
    assert await bench.printed() == (["here", "done"], [])


async def test_what_was_found_can_be_killed(bench: Bench) -> None:
    await bench.open(*shell(WAITS))
    handle = await bench.begin()
    await bench.until_printed("here")
    runtime = await bench.open(*shell("exit 0"))
    for found in (await runtime.find())["1-1-1"]:
        await runtime.kill(found)
    assert was_killed(await bench.wait(handle))
    assert await runtime.find() == {}


@pytest.mark.parametrize("all_of_it", [False, True])
async def test_a_kill_ends_all_that_the_worker_has_started(bench: Bench, all_of_it: bool) -> None:
    runtime = await bench.open(*shell("sleep 600 & " + LEAVES_OTHERS + "echo here; wait; echo never"))
    handle = await bench.begin()
    await bench.until_printed("here")
    waiting = asyncio.create_task(bench.wait(handle))
    if all_of_it:
        assert await runtime.kill_all("1-1-1")
        assert await runtime.find() == {}
    else:
        await runtime.kill(handle)
    assert was_killed(await waiting)
    assert await runtime.find() == {}
    await runtime.kill(handle)
    assert await runtime.kill_all("1-1-1"), "a second time does no harm"
    assert await bench.printed() == (["here"], [])


async def test_the_end_of_a_worker_ends_what_it_has_left(bench: Bench) -> None:
    runtime = await bench.open(*shell(LEAVES_OTHERS + "exit 0"))
    assert (await bench.wait(await bench.begin())).code == 0
    assert await runtime.find() == {}


@pytest.mark.parametrize(
    ("ending", "code", "killed"),
    [
        ("exit 137", 137, False),
        ("exit 255", 255, False),
        ("sh -c 'kill -9 $$'; exit", 137, False),  # only a helper of it was killed, and it made a code of that
        ("kill -9 $$", 137, True),
        ("kill -15 $$", 143, True),
    ],
)
async def test_a_death_by_a_signal_is_told_from_an_exit_code_of_its_number(
    bench: Bench, ending: str, code: int, killed: bool
) -> None:
    await bench.open(*shell(ending))
    ended = await bench.wait(await bench.begin())
    assert (ended.code, ended.killed) == (code, killed)


async def test_a_wait_may_be_given_up_and_begun_again(bench: Bench) -> None:
    runtime = await bench.open(*shell(WAITS + "kill -9 $$"))
    handle = await bench.begin()
    first = asyncio.create_task(runtime.wait("1-1-1", handle))
    await bench.until_printed("here")
    first.cancel()
    bench.say_now()
    assert (await bench.wait(handle)).code == 128 + 9


async def test_output_is_read_from_where_it_was_read_last(bench: Bench) -> None:
    runtime = await bench.open(*shell(r"printf 'one\n\ntwo\rthr'; printf 'warning\n' >&2; " + WAITS + r"printf 'ee\nlast'"))
    handle = await bench.begin()
    await bench.until_printed("thrhere")
    first = await runtime.output("1-1-1", None, (0, 0), final=False)
    assert (first.stdout, first.stderr) == (("one", "thrhere"), ("warning",)), "what a return overwrites is shown by no terminal"
    same = await runtime.output("1-1-1", None, first.offsets, final=False)
    assert (same.stdout, same.stderr, same.offsets) == ((), (), first.offsets)
    bench.say_now()
    await bench.wait(handle)
    runtime = await bench.open(*shell("exit 0"))
    unfinished = await runtime.output("1-1-1", None, first.offsets, final=False)
    assert unfinished.stdout == ("ee",)
    assert (await runtime.output("1-1-1", None, unfinished.offsets, final=True)).stdout == ("last",)


async def test_a_look_at_the_output_is_bounded(bench: Bench) -> None:
    runtime = await bench.open(*shell("head -c 3000000 /dev/zero | tr '\\0' x"))
    await bench.wait(await bench.begin())
    assert 0 < len("".join((await runtime.output("1-1-1", None, (0, 0), final=False)).stdout)) <= 1 << 20
    assert len("".join((await bench.printed())[0])) == 3_000_000
    cut = await runtime.output("1-1-1", None, (0, 0), final=False, cut=lambda data: 1000)
    assert cut.stdout == ("x" * 1000,), "a line that goes on ends where the agent wants it to"
    assert (await runtime.output("1-1-1", None, cut.offsets, final=False, cut=lambda data: 7)).stdout == ("x" * 7,)


async def test_the_sentence_for_the_user_is_told_else_the_end_of_standard_error(bench: Bench) -> None:
    await bench.open(*shell('echo noise >&2; echo "model_def.py:3: no data" >"$TENUTO_ERROR_FILE"; exit 1'))
    assert await bench.wait(await bench.begin()) == Exit(1, "model_def.py:3: no data")
    await bench.open(*shell("seq 100000 >&2; exit 1"))
    ended = await bench.wait(await bench.begin())
    assert (ended.code, ended.said, ended.last_lines[-1]) == (1, "", "100000")
    assert len("".join(ended.last_lines)) < 1 << 20


async def test_what_workers_write_is_not_trusted(bench: Bench) -> None:
    """A link to a file of somebody else, a pipe that nobody writes to."""
    secret = bench.directory / "agent" / "agent.sqlite"
    secret.write_text("secret\n")
    await bench.open(*shell(f'ln -s {secret} "$TENUTO_ERROR_FILE"; exit 1'))
    assert await bench.wait(await bench.begin()) == Exit(1)
    await bench.open(*shell('mkfifo "$TENUTO_ERROR_FILE"; exit 1'))
    assert await bench.wait(await bench.begin()) == Exit(1)


async def test_a_worker_knows_who_it_is_and_reaches_its_agent(bench: Bench) -> None:
    """And knows nothing of the agent's own variables. Its temporary directory goes with it."""
    runtime = await bench.open(sys.executable, "-c", LOOKS_AROUND)
    server = grpc.aio.server()
    runtime.endpoint.prepare()
    for address in runtime.endpoint.addresses:
        server.add_insecure_port(address)
    await server.start()
    runtime.endpoint.opened()
    config = make_config().model_copy(update={"environment": Environment(variables={"WORD": "here", "OMP_NUM_THREADS": "3"})})
    assignment = make_assignment("0" * 64, config=config, trace="00-1-2-3")
    try:
        handle = await bench.begin(work_of(bench.context, assignment, API_KEY="value-of-key"))
        assert (await bench.wait(handle)).code == 0, await bench.printed()
    finally:
        await server.stop(None)
    [line] = [line for line in (await bench.printed())[0] if line.startswith("seen ")]
    seen = json.loads(line.removeprefix("seen "))
    environment = seen["environment"]
    assert (seen["token"], Path(seen["directory"])) == (TOKEN, bench.context)
    told = {"TENUTO_ALLOCATION_ID": "1-1-1", "TENUTO_RANK": "0", "TRACEPARENT": "00-1-2-3", "CUDA_VISIBLE_DEVICES": ""}
    chosen = {"WORD": "here", "OMP_NUM_THREADS": "3", "API_KEY": "value-of-key"}
    assert (told | chosen).items() <= environment.items()
    assert not {TOKEN, SECRET_OF_THE_AGENT} & set(environment.values())
    assert not OF_A_BATCH_JOB.items() & environment.items()
    assert not _holding(bench.directory, "value-of-key"), "a secret is on no disk"
    assert await runtime.find() == {}
    await runtime.clean("1-1-1")
    assert not Path(environment["TMPDIR"]).exists()


async def test_nothing_is_left_of_what_is_cleaned_or_swept(bench: Bench) -> None:
    runtime = await bench.open(*shell('echo here; echo oh >"$TENUTO_ERROR_FILE"; touch "$TMPDIR/file"; exit 1'))
    for trial in (1, 2, 3):
        work = work_of(bench.context, make_assignment("0" * 64, trial=trial))
        await bench.wait(await bench.begin(work), work.allocation_id)
    await runtime.clean("1-1-1")
    await runtime.clean("1-1-1")
    runtime = await bench.open(*shell("exit 0"))
    await runtime.sweep({"1-3-1"})
    assert not [path for path in bench.directory.rglob("*") if {"1-1-1", "1-2-1"} & set(path.parts)]
    assert await bench.printed("1-3-1") == (["here"], [])
    assert await bench.printed("1-2-1") == ([], [])
    handle = await bench.begin(work_of(bench.context, make_assignment("0" * 64, trial=3)))
    assert await bench.wait(handle, "1-3-1") == Exit(0), "nothing of an earlier try counts"
    assert await bench.printed("1-3-1") == ([], [])


async def test_a_gang_that_leads_says_where_it_listens_and_its_ranks_print_apart(bench: Bench) -> None:
    parts = (AgentSlots(agent_id=AGENT, slot_ids=(0, 1)), AgentSlots(agent_id="node-2", slot_ids=(0,)))
    runtime = await bench.open(*shell("echo rank $TENUTO_RANK; sleep 600"))
    handle = await bench.begin(gang_work_of(bench.context, parts))
    async with asyncio.timeout(SECONDS_MAX):
        where = await runtime.opened_rendezvous("1-1-1")
    host, _, port = where.rpartition(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)
    for rank in (0, 1):
        await bench.until_printed(f"rank {rank}", rank=rank)
    await runtime.kill(handle)
    await bench.wait(handle)
    assert await runtime.find() == {}


async def test_a_gang_that_follows_is_told_where_the_first_rank_listens(bench: Bench) -> None:
    parts = (AgentSlots(agent_id="node-2", slot_ids=(0,)), AgentSlots(agent_id=AGENT, slot_ids=(0,)))
    runtime = await bench.open(*shell("exit 0"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        await runtime.place_rendezvous("1-1-1", where)  # there is no such run yet
        handle = await bench.begin(gang_work_of(bench.context, parts))
        await runtime.place_rendezvous("1-1-1", where)
        await runtime.place_rendezvous("1-1-1", "127.0.0.1:1")
        async with asyncio.timeout(SECONDS_MAX):
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            hello = await asyncio.get_running_loop().sock_recv(connection, 65_536)
        connection.close()
    assert b"1-1-1" in hello
    assert b"word-of-the-gang" in hello
    await runtime.kill(handle)
    await bench.wait(handle)


def was_killed(ended: Exit) -> bool:
    """Some runtimes are told by which signal."""
    return ended.code in (None, 128 + signal.SIGKILL)


def _holding(directory: Path, word: str) -> list[Path]:
    return [
        path
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("stdout", "now") and word.encode() in path.read_bytes()
    ]
