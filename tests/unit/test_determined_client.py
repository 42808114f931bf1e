"""Names of `determined.experimental.client` that docs/client.md calls the same: each is there, on both clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tenuto.client.aio import checkpoints as aio_checkpoints
from tenuto.client.aio import client as aio_client
from tenuto.client.aio import experiments as aio_experiments
from tenuto.client.aio import trials as aio_trials
from tenuto.client.blocking import checkpoints, client, experiments, trials

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
CLASSES: dict[str, tuple[Any, Any]] = {
    "": (client.Client, aio_client.AsyncClient),
    "Experiment": (experiments.Experiment, aio_experiments.AsyncExperiment),
    "Trial": (trials.Trial, aio_trials.AsyncTrial),
    "Checkpoint": (checkpoints.Checkpoint, aio_checkpoints.AsyncCheckpoint),
}


def names() -> list[tuple[str, str]]:
    """Class, or nothing for the client itself, and name."""
    table = PAGE.read_text().partition("## From Determined")[2]
    found = []
    for left, right in re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE):
        kind = ""
        for name in re.findall(r"`([A-Za-z_.]+)(?:\([^`]*)?`", left):
            before, dot, last = name.rpartition(".")
            kind = before if dot else kind  # of those after it, too
            if right.startswith("the same"):
                found.append((kind, last))
    return found


@pytest.mark.parametrize(("kind", "name"), names())
def test_a_name_that_is_the_same_is_there(kind: str, name: str) -> None:
    for known in CLASSES[kind]:
        assert hasattr(known, name), f"{known.__name__}.{name}"


def test_the_table_is_read() -> None:
    assert {("", "create_experiment"), ("Experiment", "top_checkpoint"), ("Trial", "hparams"), ("Checkpoint", "download")} <= set(
        names()
    )
