"""Which events are worth a notice, by triggers and filters."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.core import Refused
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.notice import WebhookTriggered
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentDescribed, ExperimentPauseRequested, ExperimentResumeRequested
from tenuto.schemas.events.search import ExperimentCanceled, TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointDamaged, LogMatched, NoticeReported, StragglerNoticed
from tenuto.schemas.webhooks import (
    AgentLostTrigger,
    CheckpointDamagedTrigger,
    EventTrigger,
    ExperimentTrigger,
    Filters,
    LogTrigger,
    MetricTrigger,
    NoticeTrigger,
    StallTrigger,
    StragglerTrigger,
    TrialTrigger,
    Trigger,
    WaitTrigger,
)
from tenuto.services.gateway.notices.commands import TellWaits
from tenuto.services.gateway.notices.policies.triggers import CAUSES
from tests.support.notice_world import (
    COMPLETED,
    FAILED,
    LOST,
    World,
    said,
    submitted,
    validated,
)


@pytest.mark.parametrize(
    ("trigger", "event", "words"),
    [
        (ExperimentTrigger(states=("failed",)), FAILED, "Experiment 3 has failed after 4 trials."),
        (
            ExperimentTrigger(states=("completed",)),
            COMPLETED,
            "Experiment 3 has completed after 4 trials; the best is trial 3-1 with 0.5.",
        ),
        (
            TrialTrigger(states=("failed",)),
            TrialStopped(experiment_id=3, trial_id="3-1", outcome="failed", reason=Reason(rule="x")),
            "Trial 3-1 has failed.",
        ),
        (AgentLostTrigger(), LOST, "Agent node-1 is lost: no heartbeat for 10 s."),
        (
            LogTrigger(contains="ECC"),
            LogMatched(
                trial_id="3-1", allocation_id="3-1-1", agent_id="n", pattern="ECC", action="exclude_agent", line="an ECC error"
            ),
            'Trial 3-1 printed a line that matches ECC: "an ECC error".',
        ),
        (
            CheckpointDamagedTrigger(),
            CheckpointDamaged(
                trial_id="3-1", allocation_id="3-1-1", checkpoint_id="c", reason="a file is short", resumed_from=None
            ),
            "Checkpoint c of trial 3-1 is damaged (a file is short); there is no earlier one to go on from.",
        ),
        (
            StragglerTrigger(),
            StragglerNoticed(
                trial_id="3-1", allocation_id="3-1-1", rank=2, slots=4, agent_id="n", own_seconds=0.5, usual_seconds=0.1
            ),
            "Rank 2 of trial 3-1, on agent n, holds up the others: a step takes it 0.5 s, and the others 0.1 s.",
        ),
        (
            EventTrigger(types=("AgentJoined",)),
            AgentJoined(agent_id="n", pool="p", host="h", slots=(), version="1"),
            "AgentJoined was recorded.",
        ),
        (MetricTrigger(metric="loss", above=10), validated(11), "loss of trial 3-1 is 11 after 10 batches, above 10."),
        (
            MetricTrigger(metric="loss", below=0.1),
            validated(math.nan),
            "loss of trial 3-1 is NaN after 10 batches, which counts as below 0.1.",
        ),
        (
            MetricTrigger(metric="loss", below=0.1),
            validated(math.inf),
            "loss of trial 3-1 is Infinity after 10 batches, which counts as below 0.1.",
        ),
    ],
)
def test_what_a_trigger_says(trigger: Trigger, event: EventData, words: str) -> None:
    world = World(trigger)
    world.fold(submitted())
    [notice] = world.happens(event)
    assert said(notice) == words
    assert notice.event_type == event.TYPE
    for other in (FAILED, COMPLETED, LOST):
        if other.TYPE != event.TYPE:
            assert world.happens(other) == []


def test_a_metric_is_told_when_it_goes_beyond_and_again_after_it_was_back() -> None:
    world = World(MetricTrigger(metric="loss", above=10))
    world.fold(submitted())
    told = [bool(world.happens(validated(value))) for value in (1, 11, 12, math.nan, 5, 11)]
    assert told == [False, True, False, False, False, True]
    assert world.happens(validated(11, trial="3-2")), "each trial for itself"
    assert world.happens(validated(11, name="other")) == []


NO_NUMBERS = st.sampled_from((math.nan, math.inf, -math.inf))


@given(st.lists(st.one_of(st.floats(-10, 10), NO_NUMBERS), max_size=30), st.integers(1, 4), st.booleans())
def test_a_stalled_metric_against_a_naive_judge(values: list[float], patience: int, smaller: bool) -> None:
    world = World(StallTrigger(validations=patience))
    world.fold(submitted(smaller_is_better=smaller))
    for index, value in enumerate(values):
        told = bool(world.happens(validated(value)))
        numbers = [item for item in values[: index + 1] if math.isfinite(item)]
        best = (min if smaller else max)(numbers) if numbers else None
        since = index - next((at for at, item in enumerate(values) if item == best), -1)
        assert told == (since == patience)


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        (Filters(), True),
        (Filters(users=("ada",)), True),
        (Filters(users=("bob",)), False),
        (Filters(labels=("nightly",)), True),
        (Filters(labels=("nightly", "other")), False),
        (Filters(workspaces=("vision",)), True),
        (Filters(workspaces=("default",)), False),
        (Filters(experiments=(3,)), True),
        (Filters(experiments=(4,)), False),
        (Filters(experiments=(3,), users=("bob",)), False),
    ],
)
def test_filters(filters: Filters, passes: bool) -> None:
    world = World(ExperimentTrigger(states=("failed",)), AgentLostTrigger(), filters=filters)
    world.fold(submitted(labels=("nightly", "x"), workspace="vision"))
    assert bool(world.happens(LOST)), "what is no experiment's passes"
    assert bool(world.happens(FAILED)) == passes


def test_an_agent_whose_end_was_announced_is_not_told_as_lost() -> None:
    assert World(AgentLostTrigger()).happens(LOST.model_copy(update={"announced": True})) == []


def test_labels_that_were_changed_later() -> None:
    world = World(StallTrigger(validations=1), filters=Filters(labels=("nightly",)))
    world.fold(submitted())
    told = []
    for labels in (None, ("nightly",), ()):
        if labels is not None:
            world.fold(ExperimentDescribed(experiment_id=3, labels=labels))
        world.happens(validated(1.0))
        told.append(bool(world.happens(validated(2.0))))
        world.happens(validated(-len(told)))
    assert told == [False, True, False]


def test_every_cause_is_an_event_of_a_service() -> None:
    assert {EVENT_MODELS[name].OWNER for name in CAUSES} == {"searcher", "scheduler", "launcher", "tracker", "gateway"}
    world = World()
    for wrong in ("NoSuchEvent", "WebhookTriggered", "TrialProgressed"):
        with pytest.raises(Refused, match=f"{wrong} is no type of event"):
            world.make("x", EventTrigger(types=(wrong,)))


def test_what_is_well_again_is_told_once() -> None:
    world = World(AgentLostTrigger(), ExperimentTrigger(states=("failed",)), StallTrigger(validations=1), recoveries=True)
    world.fold(submitted())
    joined = AgentJoined(agent_id="node-1", pool="p", host="h", slots=(), version="1")
    assert world.happens(joined) == [], "nobody was told that it was lost"
    assert world.happens(LOST)
    [back] = world.happens(joined)
    assert (back.recovered, said(back)) == (True, "Agent node-1 is back.")
    assert world.happens(joined) == []
    world.happens(validated(1))
    assert world.happens(validated(2))
    [well] = world.happens(COMPLETED)
    assert (well.recovered, said(well)) == (True, "Experiment 3 has completed.")
    world.fold(submitted(4))
    assert world.happens(ExperimentCanceled(experiment_id=4, trials=1)) == []


def granted(trial: str = "3-1") -> AllocationGranted:
    slots = (AgentSlots(agent_id="n", slot_ids=(0,)),)
    return AllocationGranted(
        pool="p", allocation_id=f"{trial}-1", trial_id=trial, experiment_id=3, slots=slots, reason=Reason(rule="x")
    )


def released(trial: str = "3-1") -> AllocationReleased:
    return AllocationReleased(pool="p", allocation_id=f"{trial}-1", trial_id=trial, experiment_id=3, reason=Reason(rule="x"))


def wanted(trial: str = "3-1") -> TrialRequested:
    return TrialRequested(
        experiment_id=3, trial_id=trial, trial_number=1, hyperparameters={}, seed=1, target_length=10, reason=Reason(rule="x")
    )


def waits_told(world: World, seconds: float = 0.0) -> list[str]:
    world.time_us += int(seconds * 1e6)
    return [said(item) for item in world.ask(TellWaits) if isinstance(item, WebhookTriggered)]


def test_a_trial_that_waits_is_told_while_it_waits() -> None:
    world = World(WaitTrigger(seconds=60), WaitTrigger(seconds=600), recoveries=True)
    world.fold(submitted())
    world.happens(wanted())
    assert waits_told(world, 59) == []
    assert waits_told(world, 2) == ["Trial 3-1 has waited for slots for 61 s; `tenuto job ls` shows the queue."]
    assert waits_told(world, 100) == [], "once for each limit"
    assert waits_told(world, 500) == ["Trial 3-1 has waited for slots for 11 min; `tenuto job ls` shows the queue."]
    [started] = world.happens(granted())
    assert (started.recovered, said(started)) == (True, "Trial 3-1 has its slots, and waits no longer.")
    assert waits_told(world, 1_000) == []
    world.happens(released())
    assert waits_told(world, 59) == []
    assert len(waits_told(world, 1)) == 1, "a wait after a preemption counts from there"


def test_what_is_no_wait() -> None:
    world = World(WaitTrigger(seconds=60))
    world.fold(submitted())
    world.happens(wanted())
    world.happens(ExperimentPauseRequested(experiment_id=3))
    assert waits_told(world, 1_000) == [], "its user let it wait"
    world.happens(ExperimentResumeRequested(experiment_id=3))
    assert waits_told(world, 59) == []
    world.happens(TrialPaused(experiment_id=3, trial_id="3-1", reason=Reason(rule="x")))
    assert waits_told(world, 1_000) == [], "the search wants nothing of it"
    world.happens(TrialExtended(experiment_id=3, trial_id="3-1", target_length=20, reason=Reason(rule="x")))
    assert waits_told(world, 59) == []
    world.happens(TrialStopped(experiment_id=3, trial_id="3-1", outcome="completed", reason=Reason(rule="x")))
    assert waits_told(world, 1_000) == []
    world.happens(wanted("3-2"))
    world.happens(FAILED)
    assert waits_told(world, 1_000) == []


def test_a_metric_that_is_back_ends_its_trouble_and_no_other() -> None:
    world = World(MetricTrigger(metric="loss", above=10), StragglerTrigger(), recoveries=True)
    world.fold(submitted())
    world.happens(validated(11))
    world.happens(validated(12, trial="3-2"))
    assert world.happens(validated(1)) == [], "another trial is beyond"
    [back] = world.happens(validated(2, trial="3-2"))
    assert (back.recovered, said(back)) == (True, "loss of trial 3-2 is well again: 2.0 after 10 batches.")
    assert world.happens(validated(1)) == []
    world.happens(validated(11))
    slow = StragglerNoticed(
        trial_id="3-1", allocation_id="3-1-1", rank=2, slots=4, agent_id="n", own_seconds=0.5, usual_seconds=0.1
    )
    assert world.happens(slow)
    assert world.happens(validated(1)) == [], "a straggler is over with its experiment"
    [well] = world.happens(COMPLETED)
    assert well.recovered


def test_notices_of_model_code() -> None:
    world = World(NoticeTrigger(levels=("warning", "error")))
    world.fold(submitted())
    [notice] = world.happens(NoticeReported(trial_id="3-1", allocation_id="3-1-1", text="look here", level="error"))
    assert (said(notice), notice.severity) == ('Trial 3-1 says: "look here".', "error")
    assert world.happens(NoticeReported(trial_id="3-1", allocation_id="3-1-1", text="so far", level="info")) == []
