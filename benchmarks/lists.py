"""Lists of 10,000 experiments over REST, beside a select of the same page by its keys: `python benchmarks/lists.py`.

A real gateway and PostgreSQL, whose views are filled by statements: experiments, trials with hyperparameters, log lines. Each
list is asked for many times, with other values each time; the median and the 99th percentile of the whole request count. The
reference is one plain select of 100 experiments by their keys, on a connection of its own, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import asyncpg
from figures import figure, parse

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.migrations import migrate
from tenuto.kernel.service import spare_collector
from tenuto.schemas.config import ExperimentConfig

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.gateway_world import World, gateway_world

WORDS = ("lenet", "resnet", "gpt", "vit", "wide", "deep", "nightly", "paper")
USERS = tuple(f"user-{number}" for number in range(20))


CONFIG = ExperimentConfig.model_validate(
    {
        "name": "lists",
        "entrypoint": "model_def:Trial",
        "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
        "searcher": {"name": "random", "metric": "loss", "max_trials": 4, "max_length": {"batches": 100}},
    }
)
FILL = """
INSERT INTO experiments (experiment_id, name, description, labels, user_name, workspace, state, method, metric, smaller_is_better,
    pool, slots_per_trial, priority, weight, seed, config, context_hash, context_size_bytes, submitted_us, ended_us, best_metric)
SELECT n, ($3::text[])[1 + hash % 8] || ' ' || ($3::text[])[1 + hash / 8 % 8] || ' ' || n, '',
    ARRAY[($3::text[])[1 + hash / 64 % 8], ($3::text[])[1 + hash / 512 % 8]], 'user-' || hash % 20,
    'team-' || hash % 10, CASE WHEN hash % 5 = 0 THEN 'active' ELSE 'completed' END, 'random', 'loss', true,
    'default', 1, 42, 1, 1, $4, 'hash', 1,
    1700000000000000 + n * 1000000::bigint, CASE WHEN hash % 5 > 0 THEN 1700000000000000 + hash END,
    CASE WHEN hash % 50 > 0 THEN (hash % 100000) / 1e5 END
FROM (SELECT n, abs(hashint8(n) % 1000000007) AS hash FROM generate_series(1, $1::int) n WHERE $2::int > 0) numbered"""
FILL_TRIALS = """
INSERT INTO trials (experiment_id, trial_number, trial_id, state, hyperparameters, seed, target_length, requested_us)
SELECT n, t, n || '-' || t, 'completed',
    json_build_object('lr', 10 ^ (-4 + 3 * random()), 'optimizer', ($3::text[])[t], 'net', json_build_object('layers', t)),
    1, 100, 0
FROM generate_series(1, $1::int) n, generate_series(1, $2::int) t"""
FILL_FLAT = """
INSERT INTO trial_hyperparameters
SELECT t.experiment_id, t.trial_number, h.* FROM trials t, flat_hyperparameters(t.hyperparameters::jsonb) h"""
FILL_LOGS = """
INSERT INTO trial_logs (experiment_id, trial_number, allocation_id, agent_id, rank, stream, time_us, text, report_id,
    report_index)
SELECT 1, 1 + n % 4, '1-1-1', 'node', n % 8, 'stdout', n, '2026-01-01 00:00:00 INFO step ' || n || ' of the epoch, loss '
    || n / 7.0 || ', and words enough to fill a line of the usual length', gen_random_uuid(), n
FROM generate_series(1, $1::int) n"""


async def fill(connection: asyncpg.Connection, experiments: int, trials: int, lines: int) -> None:
    """The tables that lists read, as the folds leave them."""
    for statement in (FILL, FILL_TRIALS):
        values = [experiments, trials, list(WORDS), CONFIG.to_json().decode()]
        await connection.execute(statement, *values[: 4 if statement == FILL else 3])
    await connection.execute(FILL_FLAT)
    await connection.execute(FILL_LOGS, lines)
    await connection.execute("VACUUM ANALYZE")


async def timed(work: Callable[[], Awaitable[object]], count: int) -> list[float]:
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - begin)
    return sorted(taken)


BAR_MS = 150
REFERENCE = "100 experiments by key"


def told(name: str, taken: list[float], reference: float) -> float:
    """Prints a line; returns the 99th percentile."""
    median, p99 = taken[len(taken) // 2], taken[-1 - len(taken) // 100]
    print(f"{name:36} median {median * 1e3:7.2f} ms  p99 {p99 * 1e3:7.2f} ms  median / reference {median / reference:6.1f}")
    return p99


async def measure(world: World, url: str, experiments: int, requests: int, limits: Sequence[int]) -> None:
    rng = random.Random(2)
    keyed = await asyncpg.connect(url)
    statement = await keyed.prepare(
        "SELECT * FROM experiments WHERE experiment_id = ANY($1::bigint[]) ORDER BY experiment_id DESC"
    )

    async def select() -> None:
        first = rng.randrange(1, experiments - 100)
        assert len(await statement.fetch(list(range(first, first + 100)))) == 100

    def low() -> str:
        return f"{10 ** rng.uniform(-4, -1.5):.6f}"

    lists: dict[str, Callable[[], str]] = {
        "the newest": lambda: "/experiments?",
        "a page within": lambda: f"/experiments?before={rng.randrange(200, experiments)}",
        "by a part of the name": lambda: f"/experiments?name={rng.choice(WORDS)}%20{rng.choice(WORDS)}",
        "by a name that none has": lambda: f"/experiments?name=none{rng.randrange(10**6)}",
        "by label, user and state": lambda: f"/experiments?label={rng.choice(WORDS)}&user={rng.choice(USERS)}&state=completed",
        "by the best metric": lambda: f"/experiments?metric_below={rng.uniform(0.001, 0.3):.4f}",
        "by a hyperparameter": lambda: f"/experiments?hyperparameter=lr%3E{low()}",
        "by a narrow range of two": lambda: (
            f"/experiments?hyperparameter=lr%3E%3D0.01,lr%3C0.0101,net.layers%3D{rng.randint(1, 4)}"
        ),
        "sorted by the best metric": lambda: f"/experiments?sort=metric&order={rng.choice(('asc', 'desc'))}",
        "sorted by name": lambda: "/experiments?sort=name&order=asc",
        "with the total": lambda: f"/experiments?total=true&user={rng.choice(USERS)}",
        "trials of one": lambda: f"/experiments/{rng.randrange(1, experiments)}/trials",
        "a search in 200,000 log lines": lambda: f"/experiments/1/logs?limit=100&text=step%20{rng.randrange(10**6)}%20of",
    }
    await timed(select, 20)
    reference = await timed(select, requests)
    median = reference[len(reference) // 2]
    told(f"reference: {REFERENCE}", reference, median)
    spare_collector()  # as every service does once it is up
    for limit in limits:
        worst = 0.0
        print(f"pages of {limit}:")
        for name, address in lists.items():
            if limit != limits[0] and not address().startswith("/experiments?"):
                continue

            async def ask(address: Callable[[], str] = address, limit: int = limit) -> None:
                path = address()
                path += f"&limit={limit}" if path.startswith("/experiments?") else ""
                answer = await world.http.get(f"/api/v1{path}")
                assert answer.status_code == 200, answer.text

            await timed(ask, 5)
            taken = await timed(ask, requests)
            worst = max(worst, told(name, taken, median))
        print(f"the slowest p99 of pages of {limit} is {worst * 1e3:.1f} ms (bar: {BAR_MS} ms)", flush=True)
        bar = f"at most {BAR_MS} ms"
        figure(f"slowest p99 of pages of {limit}", worst * 1e3, "ms", beside=REFERENCE, of=median * 1e3, bar=bar)
    await keyed.close()


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-lists-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        server = PostgresServer(directory / "postgres")
        await server.start()
        try:
            database = SimpleNamespace(url=server.url)
            await migrate(server.owner_url)
            async with gateway_world(database, directory) as world:
                connection = await asyncpg.connect(server.owner_url)
                begin = time.perf_counter()
                await fill(connection, options.experiments, options.trials, options.lines)
                what = f"{options.experiments} experiments with {options.trials} trials each"
                print(f"{what}: filled in {time.perf_counter() - begin:.0f} s")
                await measure(world, database.url, options.experiments, options.requests, options.limits)
                await connection.close()
        finally:
            await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--limits", type=int, nargs="+", default=[50, 100, 1_000], help="experiments in a page")
    parser.add_argument("--requests", type=int, default=200)
    asyncio.run(run(parse(parser, experiments=300, trials=2, lines=100, limits=[50], requests=3)))
