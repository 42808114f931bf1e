"""Real servers for tests: one PostgreSQL per session, a fresh migrated database and a fresh NATS store per test."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import hypothesis
import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.embedded.postgres import PostgresServer
from tests.support import litter, real_parts, running_order
from tests.support.docker_daemon import Daemon, daemon
from tests.support.example_plugins import example_plugins as example_plugins
from tests.support.kubernetes_real import RealKubernetes, real_kubernetes
from tests.support.s3_server import S3Server

_numbers = count(1)
litter.start()
# No example fails for the time that it takes, which on a crowded machine says nothing of the code.
hypothesis.settings.register_profile("tenuto", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tenuto")


@dataclass(frozen=True)
class Database:
    url: str
    """As the service role."""
    owner_url: str
    """As the owner, a superuser."""
    name: str


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes make names that nobody can read and that differ between the processes of one run: an archive holds its time."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = running_order.slowest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return running_order.Mixed(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    running_order.configure(config)
    gc.disable()  # until all tests are collected: what imports make stays


def pytest_collection_finish() -> None:
    """All modules of tests and what they import stay to the end: no collection of garbage needs to look at them again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    real_parts.check(item)


def run_blocking(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a loop of its own, whether or not a loop runs in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    """Threads, determinism and warnings, which trainers set for their whole process."""
    import torch

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with warnings.catch_warnings():
        yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture(scope="session")
def server_directory() -> Iterator[Path]:
    """Directly under the temporary directory: pytest's own ones are closed to the user that PostgreSQL runs as."""
    directory = Path(tempfile.mkdtemp(prefix="tenuto-test-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[Daemon]:
    """A Docker daemon with the tests' images."""
    with daemon() as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


@pytest.fixture(scope="session")
def postgres_server(server_directory: Path) -> Iterator[PostgresServer]:
    """A running server without any of our tables. Tests that kill a server start their own."""
    server = PostgresServer(server_directory / "postgres")
    run_blocking(server.start())

    async def spare_the_disk() -> None:
        """What waits for the disk is only there for the end of the machine, which no test survives; for that of a process nothing
        has to reach it."""
        await _administer(server, "ALTER SYSTEM SET fsync = off")
        await _administer(server, "SELECT pg_reload_conf()")

    run_blocking(spare_the_disk())
    yield server
    run_blocking(server.stop())


@pytest.fixture(scope="session")
def migrated_template(postgres_server: PostgresServer) -> str:
    """Name of a migrated database that is only copied: migrations run once per session."""
    from tenuto.kernel.migrations import migrate

    name = "tenuto_template"

    async def make() -> None:
        await _administer(postgres_server, f"CREATE DATABASE {name}")
        await migrate(postgres_server.url_of(name, owner=True))

    run_blocking(make())
    return name


@pytest.fixture
async def database(postgres_server: PostgresServer, migrated_template: str) -> AsyncIterator[Database]:
    name = f"test_{next(_numbers)}"
    await _administer(postgres_server, f"CREATE DATABASE {name} TEMPLATE {migrated_template}")
    yield Database(postgres_server.url_of(name), postgres_server.url_of(name, owner=True), name)
    await _administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def empty_database(postgres_server: PostgresServer) -> AsyncIterator[Database]:
    """Without any tables, for tests of migrations."""
    name = f"empty_{next(_numbers)}"
    await _administer(postgres_server, f"CREATE DATABASE {name}")
    yield Database(postgres_server.url_of(name), postgres_server.url_of(name, owner=True), name)
    await _administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def nats() -> AsyncIterator[NatsServer]:
    """A running NATS server with an empty store; the test may kill, wipe and start it."""
    directory = Path(tempfile.mkdtemp(prefix="tenuto-nats-"))
    server = NatsServer(directory)
    await server.start()
    yield server
    await server.kill()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    """A running S3 server, for `s3_server`."""
    directory = Path(tempfile.mkdtemp(prefix="tenuto-s3-"))
    server = S3Server(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def s3_server(s3_process: S3Server) -> Iterator[S3Server]:
    """The session's S3 server with an empty bucket of the test's own. The test may kill and start it."""
    s3_process.bucket = f"test-{next(_numbers)}"
    if not s3_process.running:
        s3_process.start()
    s3_process.make_bucket(s3_process.bucket)
    yield s3_process
    if s3_process.running:
        s3_process.remove_bucket(s3_process.bucket)


async def _administer(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url_of("postgres", owner=True))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[RealKubernetes]:
    """For tests marked with `real_part(lack(), installable=False)` of tests.support.kubernetes_real."""
    with real_kubernetes() as found:
        yield found
