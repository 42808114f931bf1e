"""Notices under failures: many webhooks, a receiver that fails now and then, one that is dead for a while, a gateway that is
killed.

    python benchmarks/webhooks.py [--events 200] [--webhooks 50] [--rate 4] [--kills 3] [--dead-seconds 60]

Real PostgreSQL (fsync on) and a gateway process of its own, which is killed (SIGKILL) and started again at even times. Each event
is worth a notice to every webhook. Receivers are in this process; each checks the signature of what it gets. The program fails
(status 1) unless each receiver has every notice, each webhook's first arrivals are in order, and no notice has two ids.

delay       from the return of the append until a healthy receiver has the notice (the first time), of events that were appended
            while the gateway was up and not catching up
reference   in the same run: the median of one append of one event
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web
from figures import figure, parse
from service_process import ServiceProcess, start
from standardwebhooks import Webhook

from tenuto.embedded.postgres import PostgresServer
from tenuto.embedded.process import REST_PORTS, choose_port
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.migrations import migrate
from tenuto.kernel.settings import Settings
from tenuto.schemas.events.agent import AgentLost
from tenuto.services.gateway.app import build

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.facts import recorded

SETTLE_SECONDS = 5.0
"""After a kill: delays of what was appended meanwhile are those of the restart."""


async def gateway() -> None:
    settings = Settings.from_environment()
    log = await PostgresEventLog.connect(settings.database_url)
    service = await build(settings, log, None, SystemClock(), feed=lambda: LogFeed(log))
    await service.run()


class Receivers:
    def __init__(self, webhooks: int, dead_until: float) -> None:
        self.secrets: dict[int, str] = {}
        self.dead_until, self.random = dead_until, random.Random(7)
        self.arrived: list[dict[str, float]] = [{} for _ in range(webhooks)]
        """Of each webhook: agent -> when it was first heard of, in the order of arrival."""
        self.ids: list[dict[str, set[str]]] = [{} for _ in range(webhooks)]
        self.repeated = self.refused = 0

    async def take(self, request: web.Request) -> web.Response:
        number, body = int(request.match_info["number"]), await request.text()
        if (number == 0 and self.random.random() < 0.3) or (number == 1 and time.monotonic() < self.dead_until):
            self.refused += 1
            return web.Response(status=503)
        data = Webhook(self.secrets[number]).verify(body, dict(request.headers))
        for notice in data["data"]["notices"]:
            agent = notice["agent_id"]
            self.repeated += agent in self.arrived[number]
            self.arrived[number].setdefault(agent, time.monotonic())
            self.ids[number].setdefault(agent, set()).add(notice["id"])
        return web.Response(status=204)


class Gateway:
    def __init__(self, environment: dict[str, str], url: str) -> None:
        self._environment, self._url = environment, url
        self.process: ServiceProcess | None = None
        self.times: list[float] = []

    async def start(self) -> None:
        self.process = start([__file__, "--gateway"], self._environment)
        async with httpx.AsyncClient() as http:
            while True:
                try:
                    if (await http.get(f"{self._url}/healthz")).status_code == 200:
                        break
                except httpx.HTTPError:
                    await asyncio.sleep(0.05)
        self.times.append(time.monotonic())

    def kill(self) -> None:
        assert self.process is not None
        self.times.append(time.monotonic())
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


async def measure(arguments: argparse.Namespace, postgres: PostgresServer, directory: Path) -> dict[str, Any]:
    await migrate(postgres.owner_url)
    port = choose_port(REST_PORTS)
    url = f"http://127.0.0.1:{port}"
    own = {
        "DATABASE_URL": postgres.url, "REST_PORT": str(port), "REST_TOKEN_FILE": str(directory / "token"),
        "SHARED_DIRECTORY": str(directory / "shared"), "SECRET_KEY_FILE": str(directory / "key"),
        "WEBHOOK_ADDRESSES": "127.0.0.0/8", "LOG_LEVEL": "ERROR",
    }  # fmt: skip
    gateway = Gateway(os.environ | {f"TENUTO_{name}": value for name, value in own.items()}, url)
    await gateway.start()
    receivers = Receivers(arguments.webhooks, time.monotonic() + arguments.dead_seconds)
    app = web.Application()
    app.add_routes([web.post("/{number}", receivers.take)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiving = runner.addresses[0][1]
    token = (directory / "token").read_text().strip()
    async with httpx.AsyncClient(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}) as http:
        for number in range(arguments.webhooks):
            owner = f"user-{number // 20}"
            if number % 20 == 0:
                given = (await http.post("/users", json={"name": owner})).json()["token"]
            target = {"kind": "http", "url": f"http://127.0.0.1:{receiving}/{number}"}
            body = {"name": f"hook-{number}", "target": target, "triggers": [{"on": "agent_lost"}]}
            answer = await http.post("/webhooks", json=body, headers={"Authorization": f"Bearer {given}"})
            receivers.secrets[number] = answer.raise_for_status().json()["secret"]
    found = await drive(arguments, postgres, gateway, receivers)
    gateway.kill()
    await runner.cleanup()
    return found


async def drive(
    arguments: argparse.Namespace, postgres: PostgresServer, gateway: Gateway, receivers: Receivers
) -> dict[str, Any]:
    log = await PostgresEventLog.connect(postgres.url)
    appended: dict[str, float] = {}
    appends: list[float] = []
    kills = {arguments.events * (at + 1) // (arguments.kills + 1) for at in range(arguments.kills)}
    begun = time.monotonic()
    for number in range(arguments.events):
        await asyncio.sleep(max(0.0, begun + number / arguments.rate - time.monotonic()))
        if number in kills:
            gateway.kill()
            await gateway.start()
        before = time.monotonic()
        await recorded(log, AgentLost(agent_id=f"node-{number}", reason="no heartbeat"))
        appended[f"node-{number}"] = time.monotonic()
        appends.append(appended[f"node-{number}"] - before)
    async with asyncio.timeout(600 + arguments.dead_seconds):
        while any(len(arrived) < arguments.events for arrived in receivers.arrived):  # noqa: ASYNC110 - a poll
            await asyncio.sleep(0.1)
    await log.close()
    settle = arguments.settle_seconds
    calm = [agent for agent, at in appended.items() if not any(stop - 1 <= at <= stop + settle for stop in gateway.times[1:])]
    delays = sorted(arrived[agent] - appended[agent] for arrived in receivers.arrived[2:] for agent in calm)
    wanted = list(appended)
    return {
        "notices": sum(map(len, receivers.arrived)),
        "lost": sum(len(set(wanted) - set(arrived)) for arrived in receivers.arrived),
        "webhooks_out_of_order": sum(list(arrived) != wanted for arrived in receivers.arrived),
        "notices_with_two_ids": sum(len(ids) != 1 for found in receivers.ids for ids in found.values()),
        "sent_again_with_the_same_id": receivers.repeated,
        "answers_503": receivers.refused,
        "gateway_kills": arguments.kills,
        "delay_median_ms": round(1e3 * statistics.median(delays), 1),
        "delay_p99_ms": round(1e3 * delays[int(len(delays) * 0.99)], 1),
        "delays_measured": len(delays),
        "append_median_ms": round(1e3 * statistics.median(appends), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--webhooks", type=int, default=50)
    parser.add_argument("--rate", type=float, default=4.0, help="events per second")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--dead-seconds", type=float, default=60.0)
    parser.add_argument("--gateway", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--settle-seconds", type=float, default=SETTLE_SECONDS, help="after a kill, in which no delay counts")
    arguments = parse(parser, events=12, webhooks=3, rate=4.0, kills=1, dead_seconds=1.0, settle_seconds=0.0)
    if arguments.gateway:
        asyncio.run(gateway())
        return
    directory = Path(tempfile.mkdtemp(prefix="tenuto-bench-"))
    directory.chmod(0o711)
    try:
        found = asyncio.run(_with_postgres(arguments, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(found, indent=1))
    figure("delay of a notice, median", found["delay_median_ms"], "ms", beside="append of an event", of=found["append_median_ms"])
    wrong = found["lost"] + found["webhooks_out_of_order"] + found["notices_with_two_ids"]
    figure("notices lost, doubled or out of order", wrong, f"of {found['notices']:,}", bar="none")
    if found["lost"] or found["webhooks_out_of_order"] or found["notices_with_two_ids"]:
        sys.exit(1)


async def _with_postgres(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    server = PostgresServer(directory / "postgres")
    await server.start()
    try:
        return await measure(arguments, server, directory)
    finally:
        await server.stop()


if __name__ == "__main__":
    main()
