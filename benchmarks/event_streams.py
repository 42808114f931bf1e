"""Live events for many at once: `python benchmarks/event_streams.py [--streams 500] [--users 60] [--rate 20]`.

A real gateway in a process of its own, on PostgreSQL. Half of the workspaces are private, and each user has a role in three of
these. Events of experiments in all workspaces are recorded at a steady rate; each stream must have exactly those that its user
may see, in order, none twice. Counted are the delay from the commit to the client, and the gateway's CPU and memory. All clients
are in one process, which takes part of the delay when the machine has few cores.

`--pages N`: N of the streams are open pages, which ask for the list of experiments again after an event, every 400 ms at most.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import httpx
from figures import figure, parse
from service_process import ServiceProcess, start

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.migrations import migrate
from tenuto.kernel.service import spare_collector
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import TrialRequested

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.facts import recorded
from tests.support.gateway_world import CONFIG, CONTEXT, gateway_world

OPEN, PRIVATE, OF_ONE_USER = 10, 10, 3
REFRESH_SECONDS = 0.4
"""As page/src/api/live.ts has it."""
WHY = Reason(rule="test")
_EVENT = re.compile(rb"id: (\d+)\nevent: ")


@dataclass
class Client:
    user: int
    page: bool
    positions: list[int] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    asked: int = 0
    _outdated: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, port: int, token: str, after: int, committed: dict[int, float]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        path = f"/api/v1/events/stream?after={after}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        try:
            head = await reader.readuntil(b"retry: ")
            assert head.startswith(b"HTTP/1.1 200 "), head
            rest = b""
            while data := await reader.read(1 << 16):
                now, rest = time.perf_counter(), rest + data
                for found in _EVENT.finditer(rest):
                    position = int(found[1])
                    self.positions.append(position)
                    self.delays.append(now - committed.get(position, now))
                    self._outdated.set()
                rest = rest[-64:] if (at := rest.rfind(b"\nevent: ")) < 0 else rest[max(at + 8, len(rest) - 64) :]
        finally:
            writer.close()

    async def refresh(self, http: httpx.AsyncClient, token: str) -> None:
        tag = ""
        while True:
            await self._outdated.wait()
            self._outdated.clear()
            headers = {"Authorization": f"Bearer {token}", "If-None-Match": tag}
            answer = await http.get("/api/v1/experiments", headers=headers)
            assert answer.status_code in (200, 304), answer.text
            tag, self.asked = answer.headers["ETag"], self.asked + 1
            await asyncio.sleep(REFRESH_SECONDS)


class Gateway:
    """A process that serves until it is told to end."""

    def __init__(self, process: ServiceProcess, port: int, token: str) -> None:
        self.process, self.port, self.token = process, port, token

    @staticmethod
    async def start(url: str, directory: Path) -> Gateway:
        said, says = os.pipe()
        process = start([__file__, "--serve", url, str(directory)], os.environ, stdout=says)
        os.close(says)
        port, token = (await asyncio.to_thread(_first_line, said)).split()
        return Gateway(process, int(port), token)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self, name: str = "VmRSS") -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024


def _first_line(descriptor: int) -> str:
    with open(descriptor) as output:
        return output.readline()


async def serve(url: str, directory: Path) -> None:
    async with gateway_world(SimpleNamespace(url=url), directory) as world:
        spare_collector()
        token = world.http.headers["Authorization"].removeprefix("Bearer ")
        print(world.service.port, token, flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        await ended.wait()


async def prepare(http: httpx.AsyncClient, users: int, rng: random.Random) -> tuple[list[str], list[set[str]], dict[int, str]]:
    """Tokens of the users, the private workspaces that each sees, and the workspace of each experiment."""
    places = [f"open{n}" for n in range(OPEN)] + [f"private{n}" for n in range(PRIVATE)]
    for name in places[OPEN:]:
        made = await http.post("/api/v1/workspaces", json={"name": name, "private": True})
        assert made.status_code == 201, made.text
    experiments = {}
    for place in places:
        files = {"config": (None, f"{CONFIG}\nresources: {{workspace: {place}}}"), "context": ("context.tar.gz", CONTEXT)}
        made = await http.post("/api/v1/experiments", files=files)
        experiments[int(made.json()["id"])] = place
    tokens, seen = [], []
    for number in range(users):
        made = await http.post("/api/v1/users", json={"name": f"user{number}"})
        tokens.append(made.json()["token"])
        seen.append(set(rng.sample(places[OPEN:], OF_ONE_USER)))
        for place in sorted(seen[-1]):
            grant = {"kind": "user", "name": f"user{number}", "role": "viewer"}
            assert (await http.post(f"/api/v1/workspaces/{place}/grants", json=grant)).status_code == 200
    return tokens, seen, experiments


async def record(
    log: PostgresEventLog,
    experiments: Sequence[int],
    rate: float,
    seconds: float,
    rng: random.Random,
    committed: dict[int, float],
) -> dict[int, int]:
    """Position -> experiment, of what was recorded."""
    found, begin, trial = {}, time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        trial += 1
        experiment = rng.choice(experiments)
        data = TrialRequested(
            experiment_id=experiment, trial_id=f"{experiment}-{trial}", trial_number=trial, hyperparameters={"lr": 0.1},
            seed=1, target_length=10, reason=WHY,
        )  # fmt: skip
        position = await recorded(log, data)
        committed[position], found[position] = time.perf_counter(), experiment
        await asyncio.sleep(max(0.0, trial / rate - elapsed))
    return found


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-streams-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        server = PostgresServer(directory / "postgres")
        await server.start()
        gateway = None
        try:
            await migrate(server.owner_url)
            gateway = await Gateway.start(server.url, directory)
            await measure(gateway, await PostgresEventLog.connect(server.url), options)
        finally:
            if gateway is not None:
                gateway.process.terminate()
                gateway.process.wait()
            await server.stop()


async def measure(gateway: Gateway, log: PostgresEventLog, options: argparse.Namespace) -> None:
    rng, committed = random.Random(3), dict[int, float]()
    headers = {"Authorization": f"Bearer {gateway.token}"}
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}", headers=headers, limits=limits, timeout=60) as http:
        tokens, seen, experiments = await prepare(http, options.users, rng)
        after, before = await log.head(), gateway.megabytes()
        clients = [Client(n % options.users, page=n < options.pages) for n in range(options.streams)]
        tasks = [asyncio.create_task(item.follow(gateway.port, tokens[item.user], after, committed)) for item in clients]
        tasks += [asyncio.create_task(item.refresh(http, tokens[item.user])) for item in clients if item.page]
        await asyncio.sleep(options.settle_seconds)
        assert not any(task.done() for task in tasks), [task for task in tasks if task.done()][:1]
        open_megabytes, cpu, begin = gateway.megabytes(), gateway.cpu_seconds(), time.perf_counter()
        own = time.process_time()
        found = await record(log, sorted(experiments), options.rate, options.seconds, rng, committed)
        lasted, used, own = time.perf_counter() - begin, gateway.cpu_seconds() - cpu, time.process_time() - own
        await asyncio.sleep(options.settle_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        wrong = 0
        for client in clients:
            places = seen[client.user]
            expected = [
                position
                for position, experiment in sorted(found.items())
                if experiments[experiment].startswith("open") or experiments[experiment] in places
            ]
            if client.positions != expected:
                wrong += 1
                lacks, more = set(expected) - set(client.positions), set(client.positions) - set(expected)
                print(f"a stream of user {client.user}: {len(lacks)} missing, {len(more)} too many, of {len(expected)}")
        delays = sorted(delay for client in clients for delay in client.delays)
        print(
            f"{options.streams} streams of {options.users} users, {len(found)} events in {lasted:.0f} s: {len(delays)} received"
        )
        print(f"streams that have anything but what their user may see: {wrong}")
        print(f"delay: median {statistics.median(delays) * 1e3:.0f} ms, p99 {delays[-1 - len(delays) // 100] * 1e3:.0f} ms")
        each = used / max(len(delays), 1) * 1e6
        print(f"the gateway: {used / lasted:.2f} cores, {each:.0f} us an event received; the clients: {own / lasted:.2f} cores")
        figure("delay to a stream, median", statistics.median(delays) * 1e3, "ms")
        figure("streams with anything but what their user may see", wrong, "streams", bar="none")
        figure("the gateway's processor", used / lasted, "cores", bar="at most 1 with 200 pages")
        figure("the gateway's memory", gateway.megabytes("VmHWM"), "MB", bar="at most 300 MB with 200 pages")
        print(
            f"memory: {before:.0f} MB before, {open_megabytes:.0f} MB with all open, {gateway.megabytes('VmHWM'):.0f} MB at most"
        )
        if options.pages:
            print(f"pages: {options.pages}, which asked {sum(client.asked for client in clients) / lasted:.0f} times a second")
    await log.close()
    assert wrong == 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(sys.argv[2], Path(sys.argv[3])))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--rate", type=float, default=20.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pages", type=int, default=0)
    parser.add_argument("--settle-seconds", type=float, default=5.0, help="before and after, for connections and stragglers")
    asyncio.run(run(parse(parser, streams=4, users=2, seconds=1.0, pages=1, settle_seconds=1.0)))
