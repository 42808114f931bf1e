"""The examples for several slots, as they are but shorter, on two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.gang_bench import GangBench
from tests.support.reactions import stop_at

CONTEXT = Path(__file__).parents[2] / "examples" / "distributed"
BATCHES = 12


@pytest.mark.parametrize("name", ["ddp", "elastic", "fsdp", "script"])
def test_example(tmp_path: Path, name: str) -> None:
    config: dict[str, Any] = yaml.safe_load((CONTEXT / f"{name}.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": BATCHES}
    with GangBench(tmp_path / "bench", CONTEXT, config, config["hyperparameters"]) as bench:
        agent, [run] = bench.gang(2, BATCHES)
        agent.react = stop_at(BATCHES)
        assert run.wait() == 0, run.output()
        assert 0 < agent.validations()[-1].metrics["accuracy"] < 1
        assert agent.checkpoints()[-1].batches == BATCHES
