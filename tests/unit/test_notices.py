"""Which events are worth a notice, by triggers and filters."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.core import Refused
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentDescribed
from tenuto.schemas.events.search import ExperimentCanceled, TrialStopped
from tenuto.schemas.events.trial import CheckpointDamaged, LogMatched, StragglerNoticed
from tenuto.schemas.webhooks import (
    AgentLostTrigger,
    CheckpointDamagedTrigger,
    EventTrigger,
    ExperimentTrigger,
    Filters,
    LogTrigger,
    MetricTrigger,
    StallTrigger,
    StragglerTrigger,
    TrialTrigger,
    Trigger,
)
from tenuto.services.gateway.policies.triggers import CAUSES
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


@given(st.lists(st.one_of(st.floats(-10, 10), st.just(math.nan)), max_size=30), st.integers(1, 4), st.booleans())
def test_a_stalled_metric_against_a_naive_judge(values: list[float], patience: int, smaller: bool) -> None:
    world = World(StallTrigger(validations=patience))
    world.fold(submitted(smaller_is_better=smaller))
    for index, value in enumerate(values):
        told = bool(world.happens(validated(value)))
        numbers = [item for item in values[: index + 1] if not math.isnan(item)]
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


def test_every_cause_is_an_event_of_another_service() -> None:
    assert {EVENT_MODELS[name].OWNER for name in CAUSES} == {"searcher", "scheduler", "launcher", "tracker"}
    world = World()
    for wrong in ("NoSuchEvent", "ExperimentSubmitted", "WebhookTriggered", "TrialProgressed"):
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
