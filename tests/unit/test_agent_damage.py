"""Errors of the agent's database after which it cannot go on, and those after which it can."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tenuto.workers.agent.database import open_database
from tenuto.workers.agent.directory_watch import database_problem


def test_a_database_that_has_lost_its_tables_is_damaged(tmp_path: Path) -> None:
    """As SQLite finds it where what it shares between processes was overwritten."""
    connection = open_database(tmp_path / "agent.sqlite")
    connection.execute("DROP TABLE lanes")
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT * FROM lanes")
    assert "is damaged (no such table: lanes)" in (database_problem(caught.value, tmp_path) or "")
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT nothing FROM runs")
    assert database_problem(caught.value, tmp_path) is None
    connection.close()
