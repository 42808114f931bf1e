"""tenuto sim cluster --provision: what nodes that come and go cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli.errors import CliError
from tenuto.cli.main import app
from tenuto.cli.sim_provision import read_provisioning
from tenuto.schemas.envelope import Event
from tests.support.scheduler_driver import Driver, exited, joined, requested, stopped, submitted

SECOND = 1_000_000
POOL = """
node_types:
  - {name: gpu8, slots: 8, cost_per_hour: 2}
nodes_max: 4
idle_seconds: 300
"""


def test_ways_to_have_nodes_are_compared(tmp_path: Path) -> None:
    rows = rows_of("--jobs", 20, "--load", 0.3, "--arrivals", "bursty", file=tmp_path / "pool.yaml")
    assert {row["unfinished"] for row in rows.values()} == {0, None}
    assert rows["provisioned"]["cost"] == pytest.approx(2 * rows["provisioned"]["node_hours"])
    assert rows["foreknown"]["cost"] <= rows["provisioned"]["cost"] < rows["static"]["cost"]


def rows_of(*words: object, file: Path) -> dict[str, dict[str, Any]]:
    file.write_text(POOL)
    told = CliRunner().invoke(app, ["sim", "cluster", "--provision", str(file), *map(str, words), "--json"])
    assert told.exit_code == 0, told.output
    rows = {row["way"]: row for row in json.loads(told.output)}
    assert list(rows) == ["provisioned", "threshold", "static", "foreknown"]
    return rows


def test_a_trace_is_run_on_nodes_that_come_and_go(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    hour = 3_600
    jobs = [(0, 8, hour), (60, 8, hour), (20 * hour, 2, hour), (20 * hour + 60, 8, hour)]
    trace.write_text("submitted,slots,seconds\n" + "".join(f"{at},{slots},{seconds}\n" for at, slots, seconds in jobs))
    rows = rows_of("--trace", trace, file=tmp_path / "pool.yaml")
    assert {row["unfinished"] for row in rows.values()} == {0, None}
    assert 4.0 <= rows["foreknown"]["node_hours"] < 4.5, "two nodes for an hour each, twice, and the starts of workers"
    assert 4.0 < rows["provisioned"]["node_hours"] < 6.0
    assert rows["provisioned"]["nodes"] == 4, "they were given back in the hours between"
    assert rows["static"]["node_hours"] > 80.0
    first = rows_of("--trace", trace, "--jobs", 2, file=tmp_path / "pool.yaml")
    assert 2.0 <= first["foreknown"]["node_hours"] < 2.3


def test_a_recorded_history_is_run_on_nodes_that_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.feed(joined("a", 8), submitted(1), *requested(1, 1, 2))
    for trial in ("1-1", "1-2"):
        driver.feed(driver.started(f"{trial}-1"))
    assert len(driver.state.allocations) == 2
    driver.time_passes(3_600 * SECOND)
    for trial in ("1-1", "1-2"):
        driver.feed(stopped(trial), exited(f"{trial}-1"))
    asked: list[Path | None] = []

    def events(context: object, log: Path | None) -> list[Event]:
        asked.append(log)
        return list(driver.log)

    monkeypatch.setattr("tenuto.cli.picture.recorded_events", events)
    rows = rows_of("--recorded", file=tmp_path / "pool.yaml")
    assert asked == [None], "of the running cluster"
    assert {row["unfinished"] for row in rows.values()} == {0, None}
    assert rows["provisioned"]["nodes"] == 1, "both trials fit one node, whatever agents the history had"
    assert 1.0 < rows["provisioned"]["node_hours"] < 1.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes_mx: 1", "is refused: nodes_mx: "),
        ("nodes_max: 0", "nodes_max is 0, so no node would ever start"),
        ("nodes_max: [", "is refused: "),
        ("- 1", "must be a mapping"),
        ("{nodes_min: 3, nodes_max: 2}", "nodes_min (3) is more than nodes_max (2)"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(text)
    with pytest.raises(CliError, match=r"pool\.yaml") as refused:
        read_provisioning(file)
    assert said in str(refused.value)
    with pytest.raises(CliError, match="Cannot read"):
        read_provisioning(tmp_path / "none.yaml")
