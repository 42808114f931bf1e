"""Changes that people make to a running search, on a real cluster: pause, resume, cancel, limits, stops in mid training.

Trials stay in a batch until the test lets them go, so that each change comes at a known moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tenuto.client.messages import items
from tenuto.schemas.envelope import Event, decode_event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationReleased
from tenuto.schemas.events.request import ExperimentPauseRequested, ExperimentResumeRequested
from tenuto.schemas.events.search import ExperimentStarted, TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved, TrialFinished, ValidationReported
from tests.support.live_cluster import ROOT, LiveCluster
from tests.support.said import said

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MODEL = ROOT / "tests" / "e2e" / "models" / "held"
HELD_AT = 3
LENGTH = 8
ENDED = ("completed", "failed", "canceled")
T = TypeVar("T", bound=EventData)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("search-control") / "cluster") as cluster:
        yield cluster
        cluster.check_bus()


class Search:
    """An experiment whose trials stay in their batch HELD_AT until `go`, or until they are told to leave."""

    _numbers = count(1)

    def __init__(
        self, cluster: LiveCluster, directory: Path, searcher: dict[str, Any], held_at: int = HELD_AT, name: str = "held"
    ) -> None:
        self.cluster = cluster
        self.gate = directory / f"gate-{next(self._numbers)}"
        self.gate.mkdir()
        config = {
            "name": name,
            "entrypoint": "model_def:HeldTrial",
            "hyperparameters": {
                "learning_rate": {"type": "log", "minval": -4, "maxval": -1},
                "gate": str(self.gate),
                "hold_at": held_at,
            },
            "searcher": {"metric": "loss", "max_length": {"batches": LENGTH}, **searcher},
            "log_period": {"batches": 1},
            "reproducibility": {"experiment_seed": 7},
        }
        path = directory / f"{self.gate.name}.yaml"
        path.write_text(yaml.safe_dump(config))
        self.id = int(cluster.json("exp", "create", path, MODEL)["id"])

    def go(self) -> None:
        (self.gate / "go").touch()

    def wait_held(self, trials: int) -> None:
        """Waits until this number of its trials are in that batch."""
        self.cluster.wait_for(lambda: len(list(self.gate.glob("held-*"))) >= trials)

    def events(self) -> list[Event]:
        return [decode_event(body) for body in self.cluster.client().event_bodies(experiment=self.id)]

    def all(self, kind: type[T]) -> list[T]:
        return [event.data for event in self.events() if isinstance(event.data, kind)]

    def position(self, kind: type[EventData]) -> int:
        (found,) = (event.position for event in self.events() if isinstance(event.data, kind))
        assert found is not None
        return found

    def wait_events(self, kind: type[EventData], number: int) -> None:
        self.cluster.wait_for(lambda: len(self.all(kind)) >= number)

    @property
    def state(self) -> str:
        return str(self.cluster.client().get(f"/experiments/{self.id}")["state"])

    def wait_end(self, state: str = "completed") -> list[dict[str, Any]]:
        """Waits for the end of the experiment in this state; returns its trials."""
        self.cluster.wait_for(lambda: self.state in ENDED)
        assert self.state == state
        return items(self.cluster.client().get(f"/experiments/{self.id}/trials"))

    def set(self, **limits: int) -> None:
        options = [part for name, value in limits.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        self.cluster.cli("exp", "set", str(self.id), *options)

    def trained(self, trial: str, upto: int) -> bool:
        """True if the training metrics of each batch up to `upto` are stored, and no others."""

        def batches() -> list[int]:
            return [point["batches"] for point in items(self.cluster.client().get(f"/trials/{trial}/metrics"))]

        expected = list(range(1, upto + 1))
        assert self.cluster.once(batches, lambda found: found == expected) == expected, trial
        return True

    def live_slots(self) -> list[int]:
        """Slots in use after each grant and release."""
        used, found = 0, []
        for event in self.events():
            if isinstance(event.data, AllocationGranted):
                used += sum(len(part.slot_ids) for part in event.data.slots)
            elif isinstance(event.data, AllocationReleased):
                used -= 1
            else:
                continue
            found.append(used)
        return found


def test_a_paused_search_leaves_its_slots_and_goes_on_where_it_was(cluster: LiveCluster, tmp_path: Path) -> None:
    search = Search(cluster, tmp_path, {"name": "random", "max_trials": 3, "max_concurrent_trials": 2})
    search.wait_held(2)
    cluster.cli("exp", "pause", str(search.id))
    search.wait_events(AllocationReleased, 2)
    assert search.state == "paused"
    assert [data.batches for data in search.all(CheckpointSaved)] == [HELD_AT, HELD_AT], "saved where they were"

    search.go()
    cluster.client().post(f"/experiments/{search.id}/resume")  # as the command does, by REST
    trials = search.wait_end()
    paused, resumed = search.position(ExperimentPauseRequested), search.position(ExperimentResumeRequested)
    granted = [event.position for event in search.events() if isinstance(event.data, AllocationGranted)]
    assert sum(position < paused for position in granted) == 2
    assert not [position for position in granted if paused < position < resumed], "nothing starts while it is paused"
    for trial in trials:
        assert (trial["state"], trial["failures"]) == ("completed", 0)
        assert search.trained(trial["id"], LENGTH), "no batch is lost, none is trained twice"
    assert cluster.json("exp", "replay", str(search.id), "--verify")["ok"]
    whole, own = (cluster.json("exp", "replay", str(search.id), "--verify", how) for how in ("--whole", "--own"))
    assert (whole["ok"], whole["whole"], own["ok"], own["whole"]) == (True, True, True, False)
    assert own["events"] == len(search.events()) < whole["events"], "only what belongs to the experiment is read"
    for service in ("searcher", "tracker"):
        assert own["services"][service]["of_experiment"] == whole["services"][service]["of_experiment"] > 0
    assert own["services"]["searcher"]["decisions"] == own["services"]["searcher"]["of_experiment"]


def test_a_canceled_search_stops_after_the_batch_under_way(cluster: LiveCluster, tmp_path: Path) -> None:
    asha = {"name": "asha", "max_trials": 6, "max_concurrent_trials": 2, "divisor": 2, "max_rungs": 2}
    search = Search(cluster, tmp_path, asha, held_at=LENGTH // 2 + 2)
    # At most four trials are compared at rung 0, until two of them are on their way to the full length.
    search.wait_held(2)
    cluster.cli("exp", "cancel", str(search.id))
    trials = search.wait_end("canceled")
    held = {path.name.removeprefix("held-") for path in search.gate.glob("held-*")}
    assert len(held) == 2
    assert len(trials) > 2, "others wait at rung 0"
    stopped = {data.trial_id: data for data in search.all(TrialStopped)}
    for trial in trials:
        reached = LENGTH // 2 + 2 if trial["id"] in held else LENGTH // 2
        assert search.trained(trial["id"], reached), "the batch under way was its last"
        assert (trial["state"], said(stopped[trial["id"]])) == ("canceled", "The experiment is canceled.")
    assert search.live_slots()[-1] == 0
    saved = {data.trial_id for data in search.all(CheckpointSaved) if data.batches == LENGTH // 2 + 2}
    assert saved == held, "they saved before they left"


def test_limits_of_trials_change_while_it_runs(cluster: LiveCluster, tmp_path: Path) -> None:
    search = Search(cluster, tmp_path, {"name": "random", "max_trials": 9, "max_concurrent_trials": 1})
    search.wait_held(1)
    assert len(search.all(TrialRequested)) == 1
    search.set(max_concurrent_trials=2)
    search.wait_held(2)  # the second one trains beside the first
    assert len(search.all(TrialRequested)) == 2
    assert max(search.live_slots()) == 2
    cluster.client().patch(f"/experiments/{search.id}", {"max_trials": 4, "max_concurrent_trials": 1})
    assert "4 trials, 1 at once" in cluster.cli("exp", "describe", str(search.id)).stdout
    search.go()
    trials = search.wait_end()
    assert len(trials) == 4, "of nine that were configured"
    # Two go on that were held; from then on there is one at a time.
    active, before = 0, []
    for event in search.events():
        if isinstance(event.data, TrialRequested):
            before.append(active)
            active += 1
        elif isinstance(event.data, TrialStopped):
            active -= 1
    assert before == [0, 1, 0, 0]
    assert search.all(TrialRequested)[3].reason.numbers["concurrent_trials_max"] == 1
    assert search.all(TrialRequested)[3].reason.numbers["trials_max"] == 4


def test_a_limit_of_slots_takes_and_gives_while_it_runs(cluster: LiveCluster, tmp_path: Path) -> None:
    search = Search(cluster, tmp_path, {"name": "random", "max_trials": 3, "max_concurrent_trials": 2})
    search.wait_held(2)
    search.set(max_slots=1)
    search.wait_events(AllocationReleased, 1)
    (preempted,) = search.all(AllocationPreempted)
    assert preempted.reason.rule == "slot_limit"
    assert search.live_slots() == [1, 2, 1]
    left = preempted.trial_id
    assert [data.batches for data in search.all(CheckpointSaved) if data.trial_id == left] == [HELD_AT]

    search.set(max_slots=0)
    search.wait_events(AllocationGranted, 3)
    assert search.live_slots()[:4] == [1, 2, 1, 2]
    search.go()
    trials = search.wait_end()
    assert [trial["state"] for trial in trials] == ["completed"] * 3
    assert search.trained(left, LENGTH)


def test_a_trial_that_is_stopped_in_mid_training_trains_no_further_batch(cluster: LiveCluster, tmp_path: Path) -> None:
    search = Search(cluster, tmp_path, {"name": "custom", "max_trials": 2, "max_concurrent_trials": 2})
    search.wait_events(ExperimentStarted, 1)

    def ask(cause: type[EventData], *operations: dict[str, Any]) -> None:
        cause_id = next(str(event.id) for event in search.events() if isinstance(event.data, cause))
        body = {"searcher": "test", "cause_id": cause_id, "operations": operations}
        cluster.client().post(f"/experiments/{search.id}/operations", body)

    ask(ExperimentStarted, {"kind": "create", "length": LENGTH}, {"kind": "create", "length": LENGTH})
    search.wait_held(2)
    ask(TrialRequested, {"kind": "stop", "trial": 1})
    cluster.wait_for(lambda: any(data.trial_id == f"{search.id}-1" for data in search.all(TrialFinished)))
    assert search.trained(f"{search.id}-1", HELD_AT), "the batch under way was its last"
    assert not [data for data in search.all(ValidationReported) if data.trial_id == f"{search.id}-1"]
    search.go()
    trials = search.wait_end()
    assert [trial["state"] for trial in trials] == ["early_stopped", "completed"]
    assert search.trained(f"{search.id}-2", LENGTH)


def test_who_loses_at_a_rung_trains_no_batch_beyond_it(cluster: LiveCluster, tmp_path: Path) -> None:
    """The stopping form decides at a rung, and a trial waits there with its slots until it is told: so it is never ahead."""
    stopping = {"name": "asha", "mode": "stopping", "max_trials": 8, "max_concurrent_trials": 2, "divisor": 2, "max_rungs": 3}
    search = Search(cluster, tmp_path, stopping, held_at=0)
    trials = search.wait_end()
    rungs = {2, 4, 8}
    lost = [data for data in search.all(TrialStopped) if data.outcome == "early_stopped"]
    assert lost
    reached = {data.trial_id: data.length for data in search.all(ValidationReported)}
    for data in lost:
        assert data.reason.numbers["length"] == reached[data.trial_id] in rungs
        assert search.trained(data.trial_id, reached[data.trial_id])
    last = lost[-1]
    said = cluster.cli("exp", "why", last.trial_id).stdout
    assert f"Rank {last.reason.numbers['rank']} of {last.reason.numbers['of']} at rung" in said
    assert "asha.stop" in said
    extended = search.all(TrialExtended)
    assert all(data.reason.rule in ("asha.go_on", "asha.finalist") for data in extended)
    grants = [data.trial_id for data in search.all(AllocationGranted)]
    waited = {data.trial_id for data in search.all(TrialPaused)}
    assert len(set(grants)) == 8
    assert all(grants.count(trial_id) == 1 for trial_id in set(grants) - waited), "who goes on keeps its slot"
    assert 1 <= len(waited) <= len(rungs), "only the first one at a rung waits without slots"
    assert len(trials) == 8
