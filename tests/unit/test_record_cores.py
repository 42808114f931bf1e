"""Records in the cores: written out once, known to the next start, and passed on from a parent."""

from __future__ import annotations

from typing import Any

from tenuto.kernel.decision import step
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, Slot
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.events.trial import DataRecorded, EnvironmentRecorded, ReportRefused
from tenuto.schemas.ids import name_id
from tenuto.schemas.record import DataFingerprint, EnvironmentRecord, Hardware, KnownData, Parent, TrialSource
from tenuto.schemas.reports import DataReport, EnvironmentReport
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.experiments.commands import SubmitExperiment
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.effects.assigning import assignments_of
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.tracker import state as tracker_state
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.core import TrackerCore

WHY = Reason(rule="test")
HARDWARE = Hardware(machine="x86_64", cpu_model="CPU", cpu_cores=2, memory_gib=8)
DATA = DataFingerprint(name="train", path="/data", fingerprint="aa", method="content", files=1, size_bytes=1)


def environment(python: str = "3.12") -> EnvironmentRecord:
    return EnvironmentRecord(python=python, platform="Linux", packages={"torch": "2"}, hardware=HARDWARE)


class Folded:
    """A core and the log that it has folded."""

    def __init__(self, core: Any) -> None:
        self.core, self.state, self.count = core, core.initial(), 0

    def event(self, data: EventData) -> list[EventData]:
        self.count += 1
        event = Event(
            id=name_id("input", str(self.count)), stream=data.stream(), type=data.TYPE, schema_version=1, time_us=0,
            payload=data.to_json(), actor="test/1", position=self.count,
        )  # fmt: skip
        self.state = self.core.evolve(self.state, event)
        return self.decide(event)

    def decide(self, cause: Any) -> list[EventData]:
        self.state, decided = step(self.core, self.state, cause, seen_position=self.count, time_us=0)
        self.core.check(self.state)
        assert self.core.dump(self.core.load(self.core.dump(self.state))) == self.core.dump(self.state)
        return [event.data for event in decided]


def submitted(parent: Parent | None = None, trial_seed: int | None = None) -> ExperimentSubmitted:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 10}, "trial_seed": trial_seed}
    config = ExperimentConfig.model_validate({"name": "n", "entrypoint": "m:C", "searcher": searcher})
    return ExperimentSubmitted(
        experiment_id=1, config=config, seed=5, context_hash="c", context_size_bytes=1, user="u", parent=parent
    )


def requested(number: int = 1, seed: int = 3) -> TrialRequested:
    return TrialRequested(
        experiment_id=1, trial_id=f"1-{number}", trial_number=number, hyperparameters={}, seed=seed, target_length=10, reason=WHY
    )


def granted(number: int = 1) -> AllocationGranted:
    slots = (AgentSlots(agent_id="a", slot_ids=(number,)),)
    return AllocationGranted(
        pool="default", allocation_id=f"1-{number}-1", trial_id=f"1-{number}", experiment_id=1, slots=slots, reason=WHY
    )


def tracker(trials: int = 1) -> Folded:
    folded = Folded(TrackerCore())
    folded.event(submitted())
    for number in range(1, trials + 1):
        folded.event(requested(number))
        folded.event(granted(number))
    return folded


def report(folded: Folded, number: int, record: EnvironmentRecord, id: str = "") -> list[EventData]:
    body = EnvironmentReport(trial_id=f"1-{number}", allocation_id=f"1-{number}-1", environment=record)
    return folded.decide(RecordTrialReport(name_id("report", id or f"{number}{record.python}"), 0, body))


def test_an_environment_is_written_out_once_per_experiment() -> None:
    folded = tracker(trials=3)
    [first], [second], [other] = (
        report(folded, 1, environment()), report(folded, 2, environment()), report(folded, 3, environment("3.13")),
    )  # fmt: skip
    assert isinstance(first, EnvironmentRecorded)
    assert isinstance(second, EnvironmentRecorded)
    assert isinstance(other, EnvironmentRecorded)
    assert (first.environment, second.environment) == (environment(), None)
    assert first.environment_hash == second.environment_hash != other.environment_hash
    assert other.environment == environment("3.13")


def test_too_many_environments_are_written_out_again(monkeypatch: Any) -> None:
    monkeypatch.setattr("tenuto.services.tracker.evolve.ENVIRONMENTS_MAX", 1)
    folded = tracker(trials=2)
    for attempt in range(2):
        [found] = report(folded, 2, environment("3.13" if attempt else "3.12"), f"{attempt}")
        assert isinstance(found, EnvironmentRecorded)
        assert found.environment is not None
    assert tracker_state.ENVIRONMENTS_MAX > 1


def test_a_record_of_an_allocation_that_is_gone_is_refused() -> None:
    folded = tracker()
    body = DataReport(trial_id="1-1", allocation_id="1-1-9", data=DATA)
    [found] = folded.decide(RecordTrialReport(name_id("late"), 0, body))
    assert isinstance(found, ReportRefused)
    assert found.report == "data"


def test_declared_data_are_recorded_with_what_they_were() -> None:
    folded = tracker()
    body = DataReport(trial_id="1-1", allocation_id="1-1-1", data=DATA, changed_from="bb")
    [found] = folded.decide(RecordTrialReport(name_id("data"), 0, body))
    assert found == DataRecorded(trial_id="1-1", allocation_id="1-1-1", data=DATA, changed_from="bb")


def launcher(parent: Parent | None = None) -> Folded:
    folded = Folded(LauncherCore())
    slots = tuple(Slot(slot_id=number, kind="cpu", device="cpu") for number in (1, 2))
    folded.event(submitted(parent))
    folded.event(AgentJoined(agent_id="a", pool="default", host="h", version="1", slots=slots))
    for number in (1, 2):
        folded.event(requested(number))
        folded.event(granted(number))
    return folded


def known(folded: Folded) -> list[list[tuple[str, str, str]]]:
    assigned = assignments_of(folded.state, "a", 1).assignments
    return [[(item.name, item.fingerprint, item.recorded_by) for item in one.known_data] for one in assigned]


def test_the_next_start_knows_what_was_recorded() -> None:
    folded = launcher()
    assert known(folded) == [[], []]
    folded.event(DataRecorded(trial_id="1-1", allocation_id="1-1-1", data=DATA))
    assert known(folded) == [[("train", "aa", "1-1")], [("train", "aa", "1-1")]], "the first of the experiment counts for all"
    changed = DATA.model_copy(update={"fingerprint": "bb"})
    folded.event(DataRecorded(trial_id="1-2", allocation_id="1-2-1", data=changed, changed_from="aa"))
    assert known(folded) == [[("train", "aa", "1-1")], [("train", "bb", "1-2")]], "a trial is told of its own change once"


def test_the_next_start_knows_the_environment_of_the_last() -> None:
    folded = launcher()
    for environment_hash in ("aa", "bb"):
        folded.event(
            EnvironmentRecorded(trial_id="1-2", allocation_id="1-2-1", environment_hash=environment_hash, environment=None)
        )
    assert [one.known_environment for one in assignments_of(folded.state, "a", 1).assignments] == ["", "bb"]


def test_a_child_knows_its_parents_data_and_starts_from_its_checkpoints() -> None:
    source = TrialSource(trial_number=2, seed=3, checkpoint_id="7-2-1-80", location="file:///c", batches=80)
    other = TrialSource(trial_number=1, seed=99, checkpoint_id="7-1-1-80", location="file:///c", batches=80)
    data = (KnownData(name="train", fingerprint="aa", recorded_by="7-1"),)
    folded = launcher(Parent(relation="continuation", experiment_id=7, sources=(source, other), data=data))
    first, second = assignments_of(folded.state, "a", 1).assignments
    assert first.checkpoint is None, "a trial of another seed is another trial"
    assert second.checkpoint is not None
    assert (second.checkpoint.checkpoint_id, second.checkpoint.batches) == ("7-2-1-80", 80)
    assert known(folded)[0] == [("train", "aa", "7-1")]


def test_a_single_trial_repeats_a_seed_that_it_is_given() -> None:
    for wanted in (None, 1234):
        decided = Folded(SearcherCore()).event(submitted(trial_seed=wanted))
        [trial] = [item for item in decided if isinstance(item, TrialRequested)]
        assert (trial.seed == 1234) == (wanted is not None)


def test_a_submission_remembers_its_parent() -> None:
    parent = Parent(relation="fork", experiment_id=4)
    data = submitted()
    command = SubmitExperiment(
        id=name_id("s"), time_us=0, user="u", config=data.config, seed=1, context_hash="c", context_size_bytes=1, parent=parent
    )
    [found] = Folded(GatewayCore()).decide(command)
    assert isinstance(found, ExperimentSubmitted)
    assert found.parent == parent
