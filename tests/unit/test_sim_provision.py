"""tenuto sim cluster --provision: what nodes that come and go cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tenuto.cli.errors import CliError
from tenuto.cli.main import app
from tenuto.cli.sim_provision import read_provisioning

POOL = """
node_types:
  - {name: gpu8, slots: 8, cost_per_hour: 2}
nodes_max: 4
idle_seconds: 300
"""


def test_ways_to_have_nodes_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(POOL)
    told = CliRunner().invoke(
        app, ["sim", "cluster", "--provision", str(file), "--jobs", "20", "--load", "0.3", "--arrivals", "bursty", "--json"]
    )
    assert told.exit_code == 0, told.output
    rows = {row["way"]: row for row in json.loads(told.output)}
    assert list(rows) == ["provisioned", "threshold", "static", "foreknown"]
    assert {row["unfinished"] for row in rows.values()} == {0, None}
    assert rows["provisioned"]["cost"] == pytest.approx(2 * rows["provisioned"]["node_hours"])
    assert rows["foreknown"]["cost"] <= rows["provisioned"]["cost"] < rows["static"]["cost"]


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
