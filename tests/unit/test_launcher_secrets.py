"""Assignments of trials whose secrets cannot be read: the agent gets all others at once, and the log names the reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenuto.kernel.private_files import make_private
from tenuto.kernel.report_tokens import ReportTokens
from tenuto.kernel.secrets import SecretKeyError, Secrets
from tenuto.kernel.storage.definitions import DEFINITIONS
from tenuto.kernel.storage.kinds.s3 import S3Definition
from tenuto.kernel.storage.stores import Stores, stores_of, write_stores
from tenuto.schemas.assignments import Assignments
from tenuto.services.launcher import effects
from tenuto.services.launcher.effects import Assigned
from tenuto.services.launcher.effects.assigning import assignments_of
from tests.support.launcher_driver import CONFIG, Driver


class Table:
    """As much of a pool of connections as secrets need."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.rows: dict[tuple[str, str], bytes] = {}
        self.error, self.hangs = error, hangs

    async def execute(self, _: str, user: str, name: str, sealed: bytes, time_us: int) -> None:
        self.rows[user, name] = sealed

    async def fetch(self, _: str, users: Sequence[str], names: Sequence[str]) -> list[Any]:
        if self.error is not None:
            raise self.error
        if self.hangs:
            await asyncio.Event().wait()
        return [(*key, self.rows[key]) for key in zip(users, names, strict=True) if key in self.rows]


@pytest.fixture
def assignments(monkeypatch: pytest.MonkeyPatch) -> Assignments:
    given = {"image": "r.example.com/x", "secrets": {"API_KEY": "olga/key"}, "registry_auth": "olga/registry"}
    environment = CONFIG.environment.model_copy(update=given)
    monkeypatch.setattr("tests.support.launcher_driver.CONFIG", CONFIG.model_copy(update={"environment": environment}))
    driver = Driver()
    driver.join()
    driver.grant()
    return assignments_of(driver.state, "a", 1)


async def told(assignments: Assignments, secrets: Secrets) -> Assignments:
    return await Assigned(ReportTokens("key"), secrets, Stores()).completed(assignments, "a")


async def test_values_are_told_with_the_assignments(assignments: Assignments, tmp_path: Path) -> None:
    table = Table()
    secrets = Secrets(table, tmp_path / "secret.key")
    await secrets.set("olga", "key", "correct horse", 1)
    assert (await told(assignments, secrets)).secrets == {"olga/key": "correct horse"}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (Table(asyncpg.InternalClientError("got result for unknown protocol state 3")), "unknown protocol state"),
        (Table(ConnectionRefusedError(111, "Connection refused")), "Connection refused"),
        (Table(hangs=True), "TimeoutError"),
        (Table(), "were removed"),
    ],
)
async def test_a_database_that_fails_or_hangs_keeps_no_assignment_back(
    assignments: Assignments, table: Table, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(effects, "SECRETS_SECONDS_MAX", 0.01)
    with caplog.at_level(logging.WARNING):
        found = await told(assignments, Secrets(table, tmp_path / "secret.key"))
    assert (found.secrets, list(found.tokens)) == ({}, ["1-1-1"])
    assert why in caplog.text


async def test_a_key_that_cannot_be_used_is_said(
    assignments: Assignments, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is an error of the operator, not of the one secret that could not be opened."""
    table, key = Table(), tmp_path / "secret.key"
    await Secrets(table, key).set("olga", "key", "correct horse", 1)
    key.chmod(0o644)
    assert (await told(assignments, Secrets(table, key))).secrets == {}
    assert f"run `chmod 600 {key}`" in caplog.text
    key.unlink()
    assert (await told(assignments, Secrets(table, key))).secrets == {}
    assert "stored with another key: olga/key" in caplog.text
    with pytest.raises(SecretKeyError, match="TENUTO_SECRET_KEY_FILE is not set"):
        await Secrets(table, None).values(["olga/key"])


def test_a_private_file_is_made_once_also_after_a_crash_of_a_process_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    file = tmp_path / "secret.key"
    (tmp_path / ".secret.key.1").write_bytes(b"half")
    make_private(file, b"first")
    make_private(file, b"second")
    assert file.read_bytes() == b"first"
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [".secret.key.1", "secret.key"]


async def test_the_parts_of_a_gang_are_told_one_secret_that_no_state_has(tmp_path: Path) -> None:
    driver = Driver(trials=2)
    driver.join()
    driver.join("b")
    driver.grant(slots={"a": (0,), "b": (0,)})
    driver.grant(trial=2, slots={"a": (1,)})
    assigned, secrets = Assigned(ReportTokens("key"), Secrets(Table(), tmp_path / "secret.key"), Stores()), {}
    for agent in ("a", "b"):
        told = await assigned.completed(assignments_of(driver.state, agent, 1), agent)
        secrets[agent] = {item.allocation_id: item.gang_secret for item in told.assignments}
    assert secrets["a"]["1-1-1"] == secrets["b"]["1-1-1"] != ""
    assert secrets["a"]["1-2-1"] == "", "a trial on one agent needs none"
    assert secrets["a"]["1-1-1"] not in ReportTokens("key").tokens("a", ["1-1-1"]).values()
    assert secrets["a"]["1-1-1"] not in driver.core.dump(driver.state).decode()


async def test_an_agent_is_told_of_the_stores_that_its_assignments_name_and_of_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bucket(name: str) -> S3Definition:
        return S3Definition(type="s3", bucket=name, access_key="key of " + name, secret_key="secret of " + name)

    file = tmp_path / "stores.yaml"
    write_stores(file, {"own": bucket("own"), "other": bucket("other")})
    assigned = Assigned(ReportTokens("key"), Secrets(Table(), tmp_path / "secret.key"), stores_of("", str(file)))  # type: ignore[arg-type]
    driver = Driver()
    driver.join()
    driver.grant()
    assert (await assigned.completed(assignments_of(driver.state, "a", 1), "a")).stores == "", (
        "the shared one is none of the operator's"
    )
    storage = CONFIG.checkpoint_storage.model_copy(update={"store": "own"})
    monkeypatch.setattr("tests.support.launcher_driver.CONFIG", CONFIG.model_copy(update={"checkpoint_storage": storage}))
    driver = Driver()
    driver.join()
    driver.grant()
    told = await assigned.completed(assignments_of(driver.state, "a", 1), "a")
    assert DEFINITIONS.validate_json(told.stores) == {"own": bucket("own")}
    assert "secret of" not in repr(told)
    file.write_text("own: [")
    assert (await assigned.completed(assignments_of(driver.state, "a", 1), "a")).stores == ""
