"""Somebody's idle connections, and everyone else's answers: `python benchmarks/idle_connections.py [--idle 1500] [--rounds 5]`.

A real gateway in a process of its own, on PostgreSQL. One address holds connections: silent ones, some with a half-sent request
without a name, some with one that a user has signed with a token. A user at another address asks, over a new one each time, by
turns with none of them open and with all. Compared is the 99th percentile of the answers, in pairs of one round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from event_streams import Gateway
from figures import figure, parse

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.migrations import migrate

ELSEWHERE = "127.0.0.2"
"""Another user's address: all that begin with 127 are this machine's."""
HOLDER, ASKER = "holder", "asker"
P99 = 0.99
PAUSE_SECONDS = 0.02
"""Below the rate at which a token is told to send fewer requests."""


def halves(token: str) -> list[bytes]:
    """What a connection sends before it is silent."""
    anonymous = b"GET /api/v1/user HTTP/1.1\r\nHost: tenuto\r\n"
    signed = f"Authorization: Bearer {token}\r\n".encode()
    body = b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    return [b"", anonymous, anonymous + signed, b"POST /api/v1/experiments HTTP/1.1\r\nHost: tenuto\r\n" + signed + body]


@contextlib.asynccontextmanager
async def held(port: int, count: int, sent: list[bytes]) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections. The gateway may end some: nothing opens them again."""
    readers, writers = [], []
    try:
        for number in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                writer.write(sent[number % len(sent)])
            readers.append(reader)
            writers.append(writer)
        yield readers
    finally:
        for writer in writers:
            writer.transport.abort()


async def p99(http: httpx.AsyncClient, requests: int) -> float:
    """In seconds."""
    took = []
    for _ in range(requests):
        began = time.perf_counter()
        answer = await http.get("/api/v1/experiments")
        took.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
        await asyncio.sleep(PAUSE_SECONDS)
    return sorted(took)[min(len(took) - 1, int(len(took) * P99))]


async def measure(gateway: Gateway, options: argparse.Namespace) -> None:
    base = f"http://127.0.0.1:{gateway.port}"
    async with httpx.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {gateway.token}"}, timeout=60) as admin:
        tokens = {name: (await admin.post("/api/v1/users", json={"name": name})).json()["token"] for name in (HOLDER, ASKER)}
    transport = httpx.AsyncHTTPTransport(local_address=ELSEWHERE, limits=httpx.Limits(max_keepalive_connections=0))
    headers = {"Authorization": f"Bearer {tokens[ASKER]}"}
    alone, beside, left = [], [], []
    async with httpx.AsyncClient(base_url=base, headers=headers, transport=transport, timeout=60) as http:
        await p99(http, options.requests)  # caches are filled, code has run once
        for _ in range(options.rounds):
            alone.append(await p99(http, options.requests))
            async with held(gateway.port, options.idle, halves(tokens[HOLDER])) as readers:
                beside.append(await p99(http, options.requests))
                left.append(sum(not reader.at_eof() for reader in readers))
    ratio = statistics.median(one / other for one, other in zip(beside, alone, strict=True))
    milliseconds = [statistics.median(times) * 1e3 for times in (alone, beside)]
    print(f"{options.idle} idle connections of one address, of which {min(left)} to {max(left)} were still open at the end")
    print(f"p99 of another's {options.requests} requests: alone {milliseconds[0]:.1f} ms, beside them {milliseconds[1]:.1f} ms")
    print(f"ratio, median of {options.rounds} pairs: {ratio:.2f}")
    figure("p99 beside idle connections", milliseconds[1], "ms", beside="none", of=milliseconds[0], ratio=ratio, bar="at most 2")


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-idle-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        server = PostgresServer(directory / "postgres")
        await server.start()
        gateway = None
        try:
            await migrate(server.owner_url)
            gateway = await Gateway.start(server.url, directory)
            await measure(gateway, options)
        finally:
            if gateway is not None:
                gateway.process.terminate()
                gateway.process.wait()
            await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=1_500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=500, help="in each half of a round")
    asyncio.run(run(parse(parser, idle=40, rounds=1, requests=20)))
