"""A recorded history run again under another policy of a pool, or with more agents, beside what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationReleased, AllocationResized
from tenuto.schemas.events.request import ExperimentSubmitted, PoolPolicyChanged, SlotsClosed, SlotsOpened
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.what_if import Course, Figures, UserFigures, WhatIfAnswer, WhatIfQuestion
from tenuto.services.scheduler.evolve import apply
from tenuto.services.scheduler.simulation.cluster import SimulatedCluster
from tenuto.services.scheduler.simulation.outcome import Costs
from tenuto.services.scheduler.simulation.script import SimulationScript, joined, recorded, segments
from tenuto.services.scheduler.state import initial, policy_of

SEGMENTS_MAX = 20_000
"""Most segments in the picture of one course: a megabyte, and more than a screen has pixels."""
USERS_MAX = 100
History = Sequence[tuple[int, EventData]]
Observer = Callable[[EventData], None]


class NotPossible(Exception):
    """`str(error)` is one sentence for the user."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def measured_costs(script: SimulationScript, costs: Costs | None = None) -> Costs:
    """Costs with the times for starting and saving that the script's history shows."""
    found = costs or Costs()
    if script.startup_us is not None:
        found = replace(found, startup_us=script.startup_us)
    return found if script.save_us is None else replace(found, save_us=script.save_us)


def what_if(events: Sequence[Event], question: WhatIfQuestion, observer: Observer | None = None) -> WhatIfAnswer:
    """`events`: of the log up to a position. `observer` hears every simulated event. Raises NotPossible."""
    whole = recorded(events, policies=True)
    pools = {data.pool for _, data in whole.facts if isinstance(data, AgentJoined)}
    if question.pool not in pools:
        raise NotPossible("not_found", f"No agent of pool {question.pool} had joined by then.")
    trials = sorted(whole.trials, key=lambda trial: (trial.arrives_us, trial.experiment_id, trial.number))[-question.trials :]
    script = replace(whole, trials=trials)
    if not trials:
        raise NotPossible("conflict", "No trial had run to its end by then: there is nothing to run again.")
    changed = _changed(script, question)
    costs = measured_costs(script)
    past = [(event.time_us, event.data) for event in events]
    agents = sorted({data.agent_id for _, data in changed.facts if isinstance(data, AgentJoined) and data.pool == question.pool})
    courses = [_recorded(past, script, question.pool, agents)]
    for name, run in (("simulated", script), ("changed", changed)):
        cluster = SimulatedCluster(run, None, costs, keep_history=True, observer=observer)
        outcome = cluster.run()
        pictured = _Pictured(run, question.pool, agents)
        courses.append(pictured.course(name, outcome.history, outcome.end_us, outcome.unfinished))
    return WhatIfAnswer(
        pool=question.pool,
        policy=policy_of(cluster.state, question.pool).name,
        position=events[-1].position,
        start_us=trials[0].arrives_us,
        agents=tuple(agents),
        courses=tuple(courses),
        left_out=len(ran(past)) - len(trials),
    )


def ran(history: History) -> set[str]:
    """Trials that were granted slots."""
    return {data.trial_id for _, data in history if isinstance(data, AllocationGranted)}


def _changed(script: SimulationScript, question: WhatIfQuestion) -> SimulationScript:
    start_us = min(time_us for time_us, _ in script.facts)
    facts = script.facts
    if question.policy is not None:
        others = [fact for fact in facts if not (isinstance(fact[1], PoolPolicyChanged) and fact[1].pool == question.pool)]
        facts = [(start_us, PoolPolicyChanged(pool=question.pool, policy=question.policy)), *others]
    taken = {data.agent_id for _, data in facts if isinstance(data, AgentJoined)}
    names = (f"added-{number}" for number in range(1, question.agents + len(taken) + 1))
    added = [name for name in names if name not in taken][: question.agents]
    return replace(script, facts=[(start_us, joined(name, question.slots, question.pool)) for name in added] + facts)


def _recorded(past: History, script: SimulationScript, pool: str, agents: Sequence[str]) -> Course:
    """Recorded course of the script's trials."""
    known = {trial.trial_id for trial in script.trials}
    history = [(time_us, data) for time_us, data in past if getattr(data, "trial_id", None) in known]
    ends = (time_us for time_us, data in history if isinstance(data, (AllocationReleased, WorkersExited)))
    return _Pictured(script, pool, agents).course("recorded", history, max(ends, default=script.trials[0].arrives_us), 0)


@dataclass
class _Sums:
    held: int = 0
    """Slot-microseconds."""
    preemptions: int = 0
    resizes: int = 0
    end_us: int = 0
    waits: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Trial -> its user and waiting time."""
    by_user: dict[str, int] = field(default_factory=dict)
    """Slot-microseconds."""


class _Pictured:
    def __init__(self, script: SimulationScript, pool: str, agents: Sequence[str]) -> None:
        self._script, self._pool = script, pool
        self._index = {agent_id: at for at, agent_id in enumerate(agents)}
        self._arrives = {trial.trial_id: trial.arrives_us for trial in script.trials}
        self._users = {data.experiment_id: data.user for _, data in script.facts if isinstance(data, ExperimentSubmitted)}

    def course(self, name: str, history: History, end_us: int, unfinished: int) -> Course:
        own = self._of_pool(history)
        drawn = sorted(segments(own, end_us), key=lambda item: (item.start_us, item.agent_id, item.slot_id))
        rows = [
            (self._index[item.agent_id], item.slot_id, item.start_us, item.end_us, item.experiment_id)
            for item in drawn
            if item.agent_id in self._index
        ]
        return Course.model_validate(
            {
                "name": name,
                "figures": self._figures(own, end_us, unfinished),
                "end_us": end_us,
                "segments": tuple(rows[:SEGMENTS_MAX]),
                "more": max(0, len(rows) - SEGMENTS_MAX),
            }
        )

    def _of_pool(self, history: History) -> list[tuple[int, EventData]]:
        kinds = (AllocationGranted, AllocationPreempted, AllocationResized, AllocationReleased)
        return [(time_us, data) for time_us, data in history if isinstance(data, kinds) and data.pool == self._pool]

    def _figures(self, own: History, end_us: int, unfinished: int) -> Figures:
        sums, start_us = self._summed(own, end_us), self._script.trials[0].arrives_us
        offered = offered_us(self._script.facts, self._pool, start_us, sums.end_us)
        waits = sorted(wait for _, wait in sums.waits.values()) or [0]
        return Figures(
            trials=len(sums.waits),
            unfinished=unfinished,
            wait_mean_seconds=sum(waits) / len(waits) / 1e6,
            wait_p95_seconds=waits[int(len(waits) * 0.95)] / 1e6,
            wait_longest_seconds=waits[-1] / 1e6,
            used=sums.held / offered if offered else 0.0,
            slot_hours=sums.held / 3.6e9,
            preemptions=sums.preemptions,
            resizes=sums.resizes,
            took_seconds=max(0, sums.end_us - start_us) / 1e6,
            users=_users(sums),
        )

    def _summed(self, own: History, end_us: int) -> _Sums:
        sums, live = _Sums(), dict[str, tuple[int, int, str]]()
        for time_us, data in own:
            if isinstance(data, AllocationGranted):
                user, slots = self._users.get(data.experiment_id, ""), sum(len(part.slot_ids) for part in data.slots)
                live[data.allocation_id] = (time_us, slots, user)
                if slots:  # a trial without slots waits for none
                    sums.waits.setdefault(data.trial_id, (user, max(0, time_us - self._arrives.get(data.trial_id, time_us))))
            elif isinstance(data, AllocationReleased) and data.allocation_id in live:
                _add(sums, *live.pop(data.allocation_id), time_us)
            sums.preemptions += isinstance(data, AllocationPreempted)
            sums.resizes += isinstance(data, AllocationResized)
        for item in sorted(live):
            _add(sums, *live[item], end_us)
        return sums


def _add(sums: _Sums, since_us: int, slots: int, user: str, until_us: int) -> None:
    held = slots * max(0, until_us - since_us)
    sums.held += held
    sums.by_user[user] = sums.by_user.get(user, 0) + held
    sums.end_us = max(sums.end_us, until_us)


def _users(sums: _Sums) -> tuple[UserFigures, ...]:
    found = []
    for user in sorted(sums.by_user)[:USERS_MAX]:
        waits = [wait for name, wait in sums.waits.values() if name == user] or [0]
        trials = sum(name == user for name, _ in sums.waits.values())
        mean = sum(waits) / len(waits) / 1e6
        found.append(UserFigures(user=user, trials=trials, wait_mean_seconds=mean, slot_hours=sums.by_user[user] / 3.6e9))
    return tuple(found)


def offered_us(facts: Iterable[tuple[int, EventData]], pool: str, start_us: int, end_us: int) -> int:
    """Slot-microseconds of the pool that were in service."""
    state, total, since_us, capacity = initial(), 0, start_us, 0
    for time_us, data in facts:
        if not isinstance(data, (AgentJoined, AgentLost, SlotsClosed, SlotsOpened)):
            continue
        until_us = min(max(time_us, start_us), end_us)
        total += capacity * max(0, until_us - since_us)
        since_us = max(since_us, until_us)
        state = apply(state, data, time_us)
        found = state.pools.get(pool)
        capacity = found.capacity if found else 0
    return total + capacity * max(0, end_us - since_us)
