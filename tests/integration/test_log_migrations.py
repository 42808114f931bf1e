"""Migrations: once each, in order, unchanged, and together equal to the published schema."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from tenuto.kernel.migrations import Migration, MigrationError, migrate, migrations

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate_schema", ROOT / "docs" / "generate_schema.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def query(url: str, sql: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


def test_the_kernel_comes_first_and_numbers_are_not_used_twice() -> None:
    names = [migration.name for migration in migrations()]
    assert names[0] == "kernel/0001_event_log"
    kernel = [name for name in names if name.startswith("kernel/")]
    assert names[: len(kernel)] == kernel
    numbers = [name.split("_")[0] for name in names]
    assert len(set(numbers)) == len(numbers)


async def test_each_is_applied_once(empty_database: Any) -> None:
    wanted = [migration.name for migration in migrations()]
    assert await migrate(empty_database.owner_url) == wanted
    assert await migrate(empty_database.owner_url) == []
    assert await query(empty_database.owner_url, "SELECT name FROM schema_migrations ORDER BY applied_at, name") != []


async def test_several_at_once_take_turns(empty_database: Any) -> None:
    results = await asyncio.gather(*(migrate(empty_database.owner_url) for _ in range(4)))
    assert sorted(len(result) for result in results) == [0, 0, 0, len(migrations())]


async def test_a_changed_file_is_refused(empty_database: Any) -> None:
    one, two = Migration("kernel/0001_a", "CREATE TABLE a ()"), Migration("kernel/0002_b", "CREATE TABLE b ()")
    await migrate(empty_database.owner_url, [one])
    with pytest.raises(MigrationError, match="kernel/0001_a was changed after it was applied"):
        await migrate(empty_database.owner_url, [Migration(one.name, "CREATE TABLE other ()"), two])
    assert await query(empty_database.owner_url, "SELECT name FROM schema_migrations") == [one.name]


async def test_a_newer_database_is_refused(empty_database: Any) -> None:
    one, two = Migration("kernel/0001_a", "CREATE TABLE a ()"), Migration("kernel/0002_b", "CREATE TABLE b ()")
    await migrate(empty_database.owner_url, [one, two])
    with pytest.raises(MigrationError, match="kernel/0002_b, which this Tenuto does not know"):
        await migrate(empty_database.owner_url, [one])


async def test_a_failing_file_is_undone_as_a_whole(empty_database: Any) -> None:
    good = Migration("kernel/0001_a", "CREATE TABLE a ()")
    bad = Migration("kernel/0002_b", "CREATE TABLE b (); CREATE TABLE a ()")
    with pytest.raises(MigrationError, match="kernel/0002_b failed and was undone"):
        await migrate(empty_database.owner_url, [good, bad])
    tables = await query(empty_database.owner_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    assert tables == ["a", "schema_migrations"]
    assert await migrate(empty_database.owner_url, [good, Migration(bad.name, "CREATE TABLE b ()")]) == [bad.name]


async def test_all_together_equal_the_published_schema(database: Any, empty_database: Any) -> None:
    generate = generator()
    published = generate.SCHEMA.read_text(encoding="utf-8")
    migrated = await asyncio.to_thread(generate.dump, database.owner_url)
    assert migrated == published, "run docs/generate_schema.py and look at what changed"
    connection = await asyncpg.connect(empty_database.owner_url)
    await connection.execute(published)
    await connection.close()
    assert await asyncio.to_thread(generate.dump, empty_database.owner_url) == published
