"""Random histories with two pools, loans, quotas, constraints, closed slots and elastic trials, under every policy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationPreempted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ShareChanged, SlotsClosed
from tenuto.schemas.events.run import WorkersExited
from tenuto.services.scheduler import decide
from tenuto.services.scheduler.state import State
from tests.support.scheduler_driver import WHY, Driver, joined, requested, submitted
from tests.support.scheduler_histories import POLICIES, failure, history, play, said, shrunk, with_nowhere
from tests.support.scheduler_promises import Livelock, Promises

HISTORIES = 60


@pytest.mark.parametrize("policy", POLICIES)
def test_no_promise_is_broken_and_nobody_gives_way_for_ever(policy: str) -> None:
    holds(policy, HISTORIES, complete=False)


@pytest.mark.parametrize("policy", ["priority", "fifo"])
def test_what_follows_is_decided_at_once(policy: str) -> None:
    """In one pool: when all who were told to leave have, a plan of all pools decides nothing more."""
    holds(policy, HISTORIES, without=("two pools",))


def holds(policy: str, histories: int, *, without: tuple[str, ...] = (), complete: bool = True) -> None:
    fails = partial(failure, complete=complete)
    for seed in range(histories):
        steps = history(seed, policy, without)
        broken = fails(steps)
        if broken is not None:
            steps = shrunk(steps, broken.kind, fails)
            pytest.fail("\n".join([f"seed {seed}, {policy}: {fails(steps)}", *map(said, steps)]))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_can_never_start_changes_nothing_for_others(policy: str) -> None:
    """The others' grants and preemptions are the very same, with their slots, as without it; and it is granted nothing."""
    for seed in range(HISTORIES // 2):
        steps = history(seed, policy)
        alone, beside = (decided(play(chosen, complete=False)) for chosen in (steps, with_nowhere(steps, seed)))
        assert beside == alone, f"seed {seed}"


def decided(driver: Driver) -> list[tuple[Any, ...]]:
    found = []
    for event in driver.log:
        data: Any = event.data
        if event.type in ("AllocationGranted", "AllocationResized"):
            found.append((event.type, data.allocation_id, data.pool, [part.model_dump() for part in data.slots]))
        elif event.type == "AllocationPreempted":
            found.append((event.type, data.allocation_id))
    return found


def test_a_failing_history_is_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that forgets to plan after an end is found out, with the few steps that it takes."""

    def forgetful(state: State, cause: Event) -> Sequence[EventData]:
        decided = decide.decide(state, cause)
        return [data for data in decided if not (isinstance(cause.data, WorkersExited) and isinstance(data, AllocationGranted))]

    monkeypatch.setattr("tenuto.services.scheduler.core.decide", forgetful)
    steps = next(steps for steps in (history(seed, "fifo") for seed in range(HISTORIES)) if failure(steps))
    assert len(shrunk(steps, "missed")) <= 4 < len(steps)


def granted(item: str, *parts: tuple[str, tuple[int, ...]]) -> AllocationGranted:
    slots = tuple(AgentSlots(agent_id=agent_id, slot_ids=numbers) for agent_id, numbers in parts)
    return AllocationGranted(
        pool="default", allocation_id=item, trial_id=item[:3], experiment_id=int(item[0]), slots=slots, reason=WHY
    )


@pytest.mark.parametrize(
    ("resources", "before", "grants", "wrong"),
    [
        ({}, (), [granted("1-1-1", ("a", (0, 1)))], ""),
        ({}, (), [granted("1-1-1", ("a", (0,)))], "1-1-1 has 1 slots and asks for 2 to 2"),
        ({}, (), [granted("1-1-1", ("a", (0, 1))), granted("1-2-1", ("a", (1, 2)))], "which 1-1-1 has"),
        ({}, (SlotsClosed(agent_id="a", slot_id=1),), [granted("1-1-1", ("a", (0, 1)))], "not in service"),
        ({}, (joined("a", 4, pool="other"),), [granted("1-1-1", ("a", (0, 1)))], "is on agent a of pool other"),
        ({"locality": "agent"}, (), [granted("1-1-1", ("a", (0,)), ("b", (0,)))], "is on 2 agents"),
        ({"locality": "rack"}, (), [granted("1-1-1", ("a", (0,)), ("b", (0,)))], "is on 2 racks"),
        ({"exclude_agents": ["a"]}, (), [granted("1-1-1", ("a", (0, 1)))], "which its experiment excludes"),
        ({"device": "A100"}, (), [granted("1-1-1", ("a", (0, 1)))], "without A100"),
        ({"max_slots": 3}, (), [granted("1-1-1", ("a", (0, 1))), granted("1-2-1", ("a", (2, 3)))], "to 4 slots of 3"),
        (
            {},
            (ShareChanged(owner="user", name="ada", max_slots=3),),
            [granted("1-1-1", ("a", (0, 1))), granted("1-2-1", ("a", (2, 3)))],
            "1-2-1 brings user ada to 4 slots of 3",
        ),
    ],
)
def test_broken_promises_are_heard(
    resources: dict[str, Any], before: tuple[EventData, ...], grants: list[AllocationGranted], wrong: str
) -> None:
    promises = Promises()
    for data in (joined("a", 4), joined("b", 4), *before, submitted(1, slots=2, **resources), *requested(1, 1, 2), *grants):
        promises.hear(data)
    assert len(promises.wrong) <= 2
    assert wrong in "".join(promises.wrong[:1])
    assert bool(wrong) == bool(promises.wrong)


def test_a_preemption_for_what_can_never_start_is_heard() -> None:
    def wrong(resources: dict[str, Any], *before: EventData) -> list[str]:
        promises = Promises()
        first = (joined("a", 4), submitted(1), *requested(1, 1), granted("1-1-1", ("a", (0,))))
        reason = Reason(rule="fair_share.preempts", numbers={"wanted_by_trial": "2-1"})
        told = AllocationPreempted(pool="default", allocation_id="1-1-1", trial_id="1-1", experiment_id=1, reason=reason)
        for data in (*first, *before, submitted(2, **resources), *requested(2, 1), told):
            promises.hear(data)
        return promises.wrong

    assert wrong({"slots": 4}) == wrong({"slots": 4, "locality": "agent", "agent_labels": []}) == []
    for asked in ({"slots": 5}, {"agent_labels": ["k=v"]}, {"device": "A100"}, {"exclude_agents": ["a"]}):
        assert wrong(asked) == ["1-1-1 was preempted for trial 2-1, which no agents of pool default could run"]
    assert "no agents" in wrong({"slots": 5, "locality": "agent"}, joined("b", 4))[0]
    assert "no agents" in wrong({"slots": 4}, SlotsClosed(agent_id="a", slot_id=1))[0]
    assert "larger than the quota of user ada" in wrong({"slots": 4}, ShareChanged(owner="user", name="ada", max_slots=3))[0]


def test_a_livelock_is_named() -> None:
    promises = Promises(preemptions_max=3)
    for data in (joined("a", 2), submitted(1, slots=2), granted("1-1-1", ("a", (0, 1)))):
        promises.hear(data)
    preempted = AllocationPreempted(pool="default", allocation_id="1-1-1", trial_id="1-1", experiment_id=1, reason=WHY)
    for _ in range(3):
        promises.hear(preempted)
    with pytest.raises(Livelock, match="livelock: trial 1-1 was preempted 4 times"):
        promises.hear(preempted)
