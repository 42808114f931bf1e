"""Benchmark of the event log, each number beside its reference in the same run, as a ratio: `python benchmarks/event_log.py`.

append   one writer in batches of 1, 10, 100 and 1,000 against pgbench (prepared, pipelined inserts into an equal table)
read     pages of events against psql COPY; with payloads decoded; the verification of the hash chain
peers    the PostgreSQL recorder of the `eventsourcing` library, append and read (the better of its two forms)

The rounds of the competitors alternate and the best round of each counts: other work on the machine only ever slows one down.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from uuid import uuid4

import asyncpg
import event_log_peers as peers
from figures import figure, parse

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.migrations import migrate
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.trial import ValidationReported

BATCHES = (1, 10, 100, 1_000)
PAGE = 500
"""Events per read, as the services do it."""
READ_EVENTS = 100_000
PAYLOAD = ValidationReported(
    trial_id="17-4", allocation_id="17-4-1", batches=1200, length=12, metrics={f"metric_{n}": n / 7 for n in range(5)}
).to_json()

_numbers = count()


def new_events(size: int) -> list[Event]:
    return [
        Event(
            id=uuid4(),
            stream=f"trial/{number % peers.STREAMS}",
            type="ValidationReported",
            schema_version=1,
            time_us=1_700_000_000_000_000 + number,
            payload=PAYLOAD,
            actor="tracker/1",
            correlation_id=str(number % 20),
            causation_id=uuid4(),
            seen_position=number,
        )
        for number in (next(_numbers) for _ in range(size))
    ]


async def timed(log: PostgresEventLog, batch: int, seconds: float) -> float:
    """Events per second of one writer; making the events is not counted."""
    spent, done = 0.0, 0
    while spent < seconds:
        append = Append(new_events(batch))
        begun = time.perf_counter()
        await log.append(append)
        spent += time.perf_counter() - begun
        done += batch
    return done / spent


def timed_peer(peer: peers.EventSourcing, batch: int, seconds: float) -> float:
    spent, done = 0.0, 0
    while spent < seconds:
        events = peer.events(batch)
        begun = time.perf_counter()
        peer.append(events)
        spent += time.perf_counter() - begun
        done += batch
    return done / spent


async def append_section(
    log: PostgresEventLog, owner_url: str, batches: list[int], seconds: float, rounds: int
) -> dict[int, dict[str, float]]:
    others = peers.eventsourcing(owner_url)
    table = {}
    for batch in batches:
        rates: dict[str, list[float]] = defaultdict(list)
        for _ in range(rounds):
            rates["tenuto"].append(await timed(log, batch, seconds))
            rates["pgbench"].append(await asyncio.to_thread(peers.pgbench, owner_url, batch, seconds))
            for name, peer in others.items():
                rates[f"eventsourcing {name}"].append(await asyncio.to_thread(timed_peer, peer, batch, seconds))
        table[batch] = {name: max(found) for name, found in rates.items()}
    for peer in others.values():
        peer.close()
    return table


async def read_section(log: PostgresEventLog, owner_url: str, count: int, rounds: int) -> dict[str, float]:
    while await log.head() < count:
        await log.append(Append(new_events(1_000)))

    async def pages(page: int, decode: bool) -> None:
        position = 0
        while position < count:
            found = await log.read(position, page, upto=count)
            position = found[-1].position
            if decode:
                for event in found:
                    _ = event.data

    async def speed(work: Callable[[], Awaitable[object]], events: int) -> float:
        begun = time.perf_counter()
        await work()
        return events / (time.perf_counter() - begun)

    others = peers.eventsourcing(owner_url)
    for peer in others.values():
        for _ in range(max(1, count // 5_000)):
            await asyncio.to_thread(peer.append, peer.events(1_000))
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        rates["psql COPY"].append(await asyncio.to_thread(peers.psql_copy, owner_url, count))
        rates["tenuto read, 500 a page"].append(await speed(lambda: pages(PAGE, False), count))
        rates["tenuto read, 5,000 a page"].append(await speed(lambda: pages(5_000, False), count))
        rates["tenuto read and decode"].append(await speed(lambda: pages(PAGE, True), count))
        rates["tenuto verify"].append(await speed(log.verify, await log.head()))
        for name, peer in others.items():
            read = peer.read
            rates[f"eventsourcing {name}"].append(
                await speed(lambda read=read: asyncio.to_thread(read, count // 5, PAGE), count // 5)  # type: ignore[misc]
            )
    for peer in others.values():
        peer.close()
    return {name: max(found) for name, found in rates.items()}


def report(append: dict[int, dict[str, float]], read: dict[str, float], count: int) -> None:
    print(f"append, events/s of one writer, {len(PAYLOAD)} bytes of payload")
    print(f"{'batch':>8}{'tenuto':>12}{'pgbench':>12}{'ratio':>8}{'eventsourcing':>16}{'ratio':>8}")
    for batch, rates in append.items():
        peer = max((rate for name, rate in rates.items() if name.startswith("eventsourcing")), default=float("nan"))
        own = rates["tenuto"]
        print(f"{batch:>8,}{own:>12,.0f}{rates['pgbench']:>12,.0f}{own / rates['pgbench']:>8.2f}{peer:>16,.0f}{own / peer:>8.2f}")
        figure(f"append in batches of {batch:,}", own, "events/s", beside="pgbench", of=rates["pgbench"])
        if peer == peer:  # it is installed
            figure(f"append in batches of {batch:,}", own, "events/s", beside="eventsourcing", of=peer)
    print(f"\nread, events/s of {count:,} (ratio to COPY)")
    for name, speed in read.items():
        print(f"    {name:<28}{speed:>12,.0f}{speed / read['psql COPY']:>8.2f}")
        if name != "psql COPY":
            figure(name, speed, "events/s", beside="psql COPY", of=read["psql COPY"])


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each, of which the best counts")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--read-events", type=int, default=READ_EVENTS)
    arguments = parse(parser, seconds=0.02, rounds=1, batches=[1, 100], read_events=1_000)
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as directory:
        Path(directory).chmod(0o711)  # the server runs as another user where this runs as root
        server = PostgresServer(Path(directory) / "postgres")
        await server.start()
        try:
            await migrate(server.owner_url)
            owner = await asyncpg.connect(server.owner_url)
            await owner.execute(peers.PREPARE_PGBENCH)
            version = await owner.fetchval("SHOW server_version")
            await owner.close()
            print(f"Python {platform.python_version()}, PostgreSQL {version} with fsync, best of {arguments.rounds} rounds\n")
            log = await PostgresEventLog.connect(server.url)
            append = await append_section(log, server.owner_url, arguments.batches, arguments.seconds, arguments.rounds)
            read = await read_section(log, server.owner_url, arguments.read_events, arguments.rounds)
            await log.close()
        finally:
            await server.stop()
    report(append, read, arguments.read_events)
    if arguments.json:
        arguments.json.write_text(json.dumps({"append": append, "read": read}, indent=1))


if __name__ == "__main__":
    import uvloop  # as the services do

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
