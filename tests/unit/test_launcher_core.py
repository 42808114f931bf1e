"""The launcher's rules: what becomes of workers, parts of a gang, agents that come and go; and what must hold for any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentCancelRequested
from tenuto.schemas.events.run import GangPartReported, GangRendezvousOpened, WorkersExited, WorkersStarted, WorkersStarting
from tenuto.schemas.events.search import ExperimentCompleted, TrialExtended
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved, TrialFinished
from tenuto.schemas.ids import trial_id
from tenuto.schemas.reports import RendezvousReport
from tenuto.services.launcher.commands import ExpireLease, RecordRunReport
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.effects.assigning import agents_concerned, assignments_of
from tenuto.workers.agent.reconcile import Start, reconcile
from tenuto.workers.agent.slots import device_variables
from tests.support.launcher_driver import PAUSED, STOPPED, WHY, Driver, only, preempted


def test_a_run_from_grant_to_exit() -> None:
    driver = Driver()
    assert isinstance(only(driver.join(), AgentJoined), AgentJoined)
    assert driver.join() == []
    assert driver.grant() == []
    [assignment] = assignments_of(driver.state, "a", 7).assignments
    assert (assignment.action, assignment.target_length, assignment.trace) == ("run", 10, "00-trace")
    only(driver.starting(), WorkersStarting)
    only(driver.started(), WorkersStarted)
    assert driver.starting() == driver.started() == []
    driver.event(TrialExtended(experiment_id=1, trial_id="1-1", target_length=20, reason=WHY))
    assert assignments_of(driver.state, "a", 0).assignments[0].target_length == 20
    driver.event(STOPPED)
    assert driver.action() == "stop"
    assert only(driver.exited("finished", 0), WorkersExited).outcome == "finished"
    assert driver.exited("finished", 0) == []
    assert assignments_of(driver.state, "a", 0).assignments == ()


def test_started_without_a_word_of_starting_records_both() -> None:
    driver = Driver()
    driver.join()
    driver.grant()
    assert [type(event) for event in driver.started()] == [WorkersStarting, WorkersStarted]


def test_a_new_allocation_starts_from_the_latest_checkpoint() -> None:
    driver = Driver()
    driver.join()
    driver.grant()
    for batches in (5, 9):
        driver.event(
            CheckpointSaved(
                trial_id="1-1", allocation_id="1-1-1", checkpoint_id=f"c{batches}", batches=batches, length=batches, files=(),
                size_bytes=0, location=f"file:///c{batches}",
            )
        )  # fmt: skip
    driver.event(CheckpointDeleted(trial_id="1-1", checkpoint_id="c5", reason=Reason(rule="test")))
    driver.exited("lost")
    driver.grant(number=2)
    [assignment] = assignments_of(driver.state, "a", 0).assignments
    assert assignment.checkpoint is not None
    assert assignment.checkpoint.location == "file:///c9"
    assert list(driver.state.experiments[1].checkpoints) == ["c9"]


@pytest.mark.parametrize(
    ("events", "outcome", "code", "recorded"),
    [
        ([STOPPED], "lost", None, "finished"),
        ([STOPPED], "failed", 1, "finished"),
        ([preempted()], "preempted", 80, "preempted"),
        ([preempted(kill=True)], "lost", None, "preempted"),
        ([preempted()], "failed", 1, "failed"),
        ([PAUSED], "paused", 81, "paused"),
        ([], "lost", 137, "lost"),
        ([], "finished", 0, "failed"),
        ([ExperimentCancelRequested(experiment_id=1, kill=True)], "lost", None, "finished"),
    ],
)
def test_what_an_exit_means_depends_on_what_was_asked(
    events: list[EventData], outcome: str, code: int | None, recorded: str
) -> None:
    driver = Driver()
    driver.join()
    driver.grant()
    driver.started()
    for event in events:
        driver.event(event)
    assert only(driver.exited(outcome, code), WorkersExited).outcome == recorded


@pytest.mark.parametrize(
    ("events", "action"),
    [
        ([], "run"),
        ([PAUSED], "pause"),
        ([PAUSED, TrialExtended(experiment_id=1, trial_id="1-1", target_length=30, reason=WHY)], "run"),
        ([PAUSED, preempted()], "preempt"),
        ([preempted(), STOPPED], "stop"),
        ([STOPPED, preempted(kill=True)], "kill"),
        ([STOPPED.model_copy(update={"outcome": "canceled"})], "preempt"),
        ([ExperimentCancelRequested(experiment_id=1)], "run"),
        ([ExperimentCancelRequested(experiment_id=1, kill=True)], "kill"),
    ],
)
def test_the_strongest_demand_is_the_action(events: list[EventData], action: str) -> None:
    driver = Driver()
    driver.join()
    driver.grant()
    for event in events:
        driver.event(event)
        assert agents_concerned(driver.state, driver.log[-1:]) in (["a"], [])
    assert driver.action() == action


@pytest.mark.parametrize(
    ("before", "slots", "outcome"),
    [
        ([STOPPED], {"a": (0,)}, "finished"),
        ([ExperimentCancelRequested(experiment_id=1, kill=True)], {"a": (0,)}, "finished"),
        ([STOPPED, TrialFinished(trial_id="1-1", batches=0, length=0, checkpoint_id=None)], {"a": (0,)}, "finished"),
        ([PAUSED], {"a": (0,)}, "paused"),
        ([], {"gone": (0,)}, "lost"),
        ([], {"a": (7,)}, "lost"),
    ],
)
def test_what_cannot_start_ends_at_once(before: list[EventData], slots: dict[str, tuple[int, ...]], outcome: str) -> None:
    driver = Driver()
    driver.join()
    for event in before:
        driver.event(event)
    assert only(driver.grant(slots=slots), WorkersExited).outcome == outcome
    assert not driver.state.allocations
    assert not driver.state.on_agent


def test_a_lost_agent_ends_its_allocations_after_it_is_recorded_as_lost() -> None:
    driver = Driver(trials=2)
    driver.join()
    driver.grant(1)
    driver.started()
    driver.grant(2, slots={"a": (1,)})
    decided = driver.command(ExpireLease, "a", "no heartbeat")
    assert [type(event) for event in decided] == [AgentLost, WorkersExited, WorkersExited]
    assert driver.command(ExpireLease, "a", "no heartbeat") == []
    assert driver.exited("finished", 0) == []  # a late word of it
    only(driver.join(), AgentJoined)
    assert assignments_of(driver.state, "a", 0).assignments == ()


def test_workers_without_a_trace_are_lost_but_only_by_a_fresh_heartbeat() -> None:
    driver = Driver()
    driver.join()
    driver.grant()
    assert driver.join(has=()) == []  # not yet started
    driver.started()
    assert driver.join(has=("1-1-1",)) == []
    assert driver.join(has=(), fresh=False) == []
    assert only(driver.join(has=()), WorkersExited).outcome == "lost"


def test_slots_that_vanished_end_what_ran_on_them_after_the_join() -> None:
    driver = Driver(trials=2)
    driver.join(slots=2)
    driver.grant(1)
    driver.grant(2, slots={"a": (1,)})
    decided = driver.join(slots=1, has=("1-1-1", "1-2-1"))
    assert [type(event) for event in decided] == [AgentJoined, WorkersExited]
    assert isinstance(decided[1], WorkersExited)
    assert decided[1].allocation_id == "1-2-1"


def test_a_trial_without_slots_starts_beside_one_that_has_all_slots() -> None:
    driver = Driver(trials=2)
    driver.join(slots=1)
    driver.grant(1)
    assert driver.grant(2, slots={"a": ()}) == []
    assigned = assignments_of(driver.state, "a", 0).assignments
    assert [item.slots[0].slot_ids for item in assigned] == [(0,), ()]
    assert len([step for step in reconcile("a", [], assigned) if isinstance(step, Start)]) == 2
    assert driver.started("1-2-1")[-1] == WorkersStarted(allocation_id="1-2-1", trial_id="1-2", agent_ids=("a",))
    assert only(driver.exited("finished", 0, "1-2-1"), WorkersExited).outcome == "failed"
    assert device_variables(()) == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    driver.core.check(driver.state)


class TestGang:
    @pytest.fixture
    def driver(self) -> Driver:
        driver = Driver()
        driver.join("a")
        driver.join("b")
        driver.grant(slots={"a": (0, 1), "b": (0,)})
        return driver

    def test_it_has_started_when_all_have(self, driver: Driver) -> None:
        only(driver.starting(agent="b"), WorkersStarting)
        assert driver.starting(agent="a") == []
        assert only(driver.started(agent="b"), GangPartReported).step == "started"
        assert driver.started(agent="b") == []
        assert only(driver.started(agent="a"), WorkersStarted).agent_ids == ("a", "b")

    def test_the_first_failure_kills_the_others_and_speaks_for_all(self, driver: Driver) -> None:
        driver.started(agent="a")
        driver.started(agent="b")
        assert only(driver.exited("failed", 3, agent="b"), GangPartReported).outcome == "failed"
        assert driver.action("a") == "kill"
        assert assignments_of(driver.state, "b", 0).assignments == ()
        end = only(driver.exited("lost", None, agent="a"), WorkersExited)
        assert (end.outcome, end.exit_code) == ("failed", 3)

    def test_who_only_followed_gives_way_to_who_failed(self, driver: Driver) -> None:
        """The other side may be the first to report, because it saw a connection break."""
        assert only(driver.exited("lost", 83, agent="b", followed=True), GangPartReported).followed
        assert driver.action("a") == "kill"
        end = only(driver.exited("failed", 1, agent="a"), WorkersExited)
        assert (end.outcome, end.exit_code) == ("failed", 1)

    def test_a_later_follower_does_not_speak_for_who_failed(self) -> None:
        driver = Driver()
        for agent in "abc":
            driver.join(agent)
        driver.grant(slots=dict.fromkeys("abc", (0,)))
        driver.exited("lost", 83, agent="b", followed=True)
        driver.exited("failed", 1, agent="a")
        end = only(driver.exited("lost", None, agent="c", followed=True), WorkersExited)
        assert (end.outcome, end.exit_code) == ("failed", 1)

    def test_where_rank_0_listens_is_recorded_once_and_reaches_the_others(self, driver: Driver) -> None:
        def opened(agent: str, address: str) -> list[EventData]:
            report = RendezvousReport(trial_id="1-1", allocation_id="1-1-1", agent_id=agent, address=address)
            return driver.command(RecordRunReport, report)

        assert opened("b", "10.0.0.2:1") == [], "rank 0 is on the first agent"
        assert only(opened("a", "10.0.0.1:1"), GangRendezvousOpened).address == "10.0.0.1:1"
        assert opened("a", "10.0.0.1:2") == []
        [assignment] = assignments_of(driver.state, "b", 0).assignments
        assert assignment.rendezvous == "10.0.0.1:1"
        core = LauncherCore()
        assert core.dump(core.load(core.dump(driver.state))) == core.dump(driver.state)

    def test_a_lost_agent_ends_only_its_part(self, driver: Driver) -> None:
        decided = driver.command(ExpireLease, "a", "silent")
        assert [type(event) for event in decided] == [AgentLost, GangPartReported]
        assert driver.action("b") == "kill"
        assert only(driver.exited("lost", None, agent="b"), WorkersExited).outcome == "lost"

    def test_all_leave_for_a_preemption(self, driver: Driver) -> None:
        driver.event(preempted())
        assert driver.action("a") == driver.action("b") == "preempt"
        only(driver.exited("preempted", 80, agent="a"), GangPartReported)
        assert only(driver.exited("preempted", 80, agent="b"), WorkersExited).outcome == "preempted"


def test_an_ended_experiment_leaves_nothing() -> None:
    driver = Driver()
    driver.join()
    driver.grant()
    driver.event(STOPPED)
    driver.exited("finished", 0)
    driver.event(TrialFinished(trial_id="1-1", batches=0, length=0, checkpoint_id=None))
    driver.event(ExperimentCompleted(experiment_id=1, best_trial_id=None, best_metric=None, trials=1, reason=WHY))
    assert (len(driver.state.experiments), len(driver.state.allocations), len(driver.state.of_trial)) == (0, 0, 0)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "grant", "start", "exit", "stop", "pause", "extend", "preempt", "expire", "save", "cancel", "beat"]
        ),
        st.integers(1, 3),
        st.sampled_from(["a", "b"]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(ACTS)
def test_any_order_keeps_the_invariants_and_replays_byte_for_byte(acts: list[tuple[str, int, str]]) -> None:
    driver = Driver(trials=3)
    number = 0
    exits: list[str] = []
    for act, trial, agent in acts:
        name = trial_id(1, trial)
        live = [key for key in sorted(driver.state.allocations) if key.startswith(f"{name}-")]
        busy = bool(live) or agent in driver.state.on_agent or ("a" in driver.state.on_agent or "b" in driver.state.on_agent)
        decided: list[EventData] = []
        match act:
            case "join":
                decided = driver.join(agent, has=driver.state.on_agent.get(agent, ()))
            case "beat":
                decided = driver.join(agent)
            case "grant" if not busy:
                number += 1
                decided = driver.grant(trial, number, {"a": (0,), "b": (0, 1)} if trial == 3 else {agent: (0,)})
            case "start" if live:
                decided = driver.started(live[0], agent)
            case "exit" if live:
                outcome = ("lost", "failed", "finished")[trial - 1]
                decided = driver.exited(outcome, 1, live[0], agent)
                assert driver.exited(outcome, 1, live[0], agent) == []
            case "stop":
                decided = driver.event(STOPPED.model_copy(update={"trial_id": name}))
            case "pause":
                decided = driver.event(PAUSED.model_copy(update={"trial_id": name}))
            case "extend":
                decided = driver.event(TrialExtended(experiment_id=1, trial_id=name, target_length=50, reason=WHY))
            case "preempt" if live:
                decided = driver.event(preempted().model_copy(update={"trial_id": name, "allocation_id": live[0]}))
            case "expire":
                decided = driver.command(ExpireLease, agent, "silent")
            case "save" if live:
                decided = driver.event(
                    CheckpointSaved(
                        trial_id=name, allocation_id=live[0], checkpoint_id=f"{live[0]}-{len(driver.log)}", batches=1, length=1,
                        files=(), size_bytes=0, location="file:///c",
                    )
                )  # fmt: skip
            case "cancel":
                decided = driver.event(ExperimentCancelRequested(experiment_id=1, kill=trial == 1))
        exits += [event.allocation_id for event in decided if isinstance(event, WorkersExited)]
        for known in ("a", "b"):
            assert all(item.slots for item in assignments_of(driver.state, known, 0).assignments)
    assert len(exits) == len(set(exits)), "an allocation ended twice"
    core = driver.core
    assert core.dump(fold(core, driver.log)) == core.dump(driver.state)
    assert core.load(core.dump(driver.state)) == driver.state
    assert not verify_decisions(core, driver.log).divergences
