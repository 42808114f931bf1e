"""A search that a user's own class decides, in a process of its own that is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import SearchOperationsRequested
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.operations import Create
from tests.support import light_digits
from tests.support.live_cluster import COMMAND_SECONDS_MAX, ROOT, TENUTO, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
EXAMPLE = ROOT / "examples" / "custom_search"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("custom-search") / "cluster") as cluster:
        yield cluster


def events_of(cluster: LiveCluster, experiment: int) -> list[Event]:
    return [event for event in cluster.events() if event.correlation_id == str(experiment)]


def searcher(cluster: LiveCluster, experiment: int, source: Path = EXAMPLE / "my_search.py") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(TENUTO), "search", "run", f"{source}:Zoom", str(experiment)],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_killed_search_goes_on_with_nothing_doubled(cluster: LiveCluster, tmp_path: Path) -> None:
    fewer = ["--set", "searcher.settings.rounds=2", "--set", "searcher.settings.round_trials=3"]
    model = light_digits.copied(EXAMPLE, tmp_path / "model")
    experiment = int(cluster.json("exp", "create", EXAMPLE / "config.yaml", model, *fewer)["id"])
    output = ""
    # Killed after its first decision, after its second, and while it reads the record: each time another one goes on.
    for decisions in (1, 2, 0):
        process = searcher(cluster, experiment)
        assert process.stdout is not None
        while decisions and (line := process.stdout.readline()):
            output += line
            decisions -= line.startswith("position ")
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    changed = tmp_path / "changed.py"
    changed.write_text((EXAMPLE / "my_search.py").read_text().replace("uniform(-1, 1)", "uniform(-1, 0)"))
    refused = cluster.cli("search", "run", f"{changed}:Zoom", str(experiment), check=False)
    assert refused.returncode == 1
    assert "is on record. It must be a function of what it is told" in refused.stderr, refused.stderr

    last = searcher(cluster, experiment)
    output, _ = last.communicate(timeout=COMMAND_SECONDS_MAX)
    assert last.returncode == 0, output
    assert f"Experiment {experiment} completed." in output

    events = events_of(cluster, experiment)
    asked = [event.data for event in events if isinstance(event.data, SearchOperationsRequested)]
    assert max(Counter(data.cause_id for data in asked).values()) == 1, "each event is decided on once"
    created = sum(isinstance(operation, Create) for data in asked for operation in data.operations)
    requested = [event.data for event in events if isinstance(event.data, TrialRequested)]
    assert [data.trial_number for data in requested] == list(range(1, created + 1))
    assert created == 6
    positions = {str(event.id): event.position for event in events}
    assert all(positions[data.cause_id] == data.cause_position for data in asked)
    trials = cluster.json("exp", "describe", str(experiment))["trial_list"]
    assert Counter(trial["state"] for trial in trials) == {"completed": 2, "early_stopped": 4}
    assert {trial["length"] for trial in trials if trial["state"] == "completed"} == {6}
    assert "Asked for by my_search.py:Zoom" in " ".join(
        decision["sentence"] for decision in cluster.json("exp", "why", f"{experiment}-1")
    )
    assert cluster.json("exp", "replay", str(experiment), "--verify")["ok"]


def test_it_is_run_with_the_submission_and_says_what_is_wrong(cluster: LiveCluster, tmp_path: Path) -> None:
    directory = light_digits.copied(EXAMPLE, tmp_path / "model")
    source = directory / "my_search.py"
    right = source.read_text()
    spec = f"{source}:Zoom"
    refused = cluster.cli("exp", "create", ROOT / "examples/core_api/config.yaml", ROOT / "examples/core_api", "--searcher", spec,
                          check=False)  # fmt: skip
    assert "searcher.name is asha: set it to custom" in refused.stderr

    source.write_text(right.replace('{"learning_rate": self.drawn()}', '{"learning_rat": self.drawn()}'))
    small = ["searcher.settings.rounds=1", "searcher.settings.round_trials=2", "searcher.max_length.epochs=3"]
    changes = [part for change in small for part in ("--set", change)]
    failed = cluster.cli("exp", "create", directory / "config.yaml", directory, "--searcher", spec, *changes, check=False)
    assert failed.returncode == 1
    assert "operations[0].hyperparameters.learning_rat: there is no such hyperparameter" in failed.stderr
    experiment = max(row["id"] for row in cluster.json("exp", "ls"))

    source.write_text(right)
    done = cluster.cli("search", "run", spec, str(experiment))
    assert f"Experiment {experiment} completed." in done.stdout
