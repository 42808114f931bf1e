"""Properties of the scheduler under arbitrary histories, judged by a second model that shares no code with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.pool import AllocationPreempted, AllocationReleased
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentMoved,
    ExperimentPauseRequested,
    ExperimentPoolChanged,
    ExperimentPriorityChanged,
    ExperimentResumeRequested,
    ExperimentSlotLimitChanged,
    ExperimentWeightChanged,
    PoolPolicyChanged,
    ShareChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.schemas.fast_replace import replaced
from tenuto.services.scheduler.evolve import apply
from tenuto.services.scheduler.explain import explain
from tenuto.services.scheduler.policies.feasibility import reach_of
from tenuto.services.scheduler.policies.placement import for_trial
from tenuto.services.scheduler.policies.targets import RememberedTargets, divided, divided_with
from tenuto.services.scheduler.policies.turns import quota_binds, with_turns
from tenuto.services.scheduler.state import Allocation, State, policy_of
from tenuto.services.scheduler.state.allocations import usage_keys
from tenuto.services.scheduler.state.giving_way import gives_way
from tenuto.services.scheduler.state.indexes import pool_of
from tenuto.services.scheduler.state.usage import settle
from tests.support.record import broken_rules
from tests.support.scheduler_driver import WHY, Driver, exited, extended, failed, joined, paused, requested, stopped, submitted
from tests.support.scheduler_model import judge
from tests.support.scheduler_promises import Promises

AGENTS = ("a", "b", "c")
POOLS = ("default", "other")
IMAGES = ["example.org/one:1", "example.org/two:1"]
PRIORITIES = (10, 42, 42, 60)
GIVES_WAY_MAX = 3
"""Allocations tried after every step: each costs two divisions of its pool."""


class AnyHistory(RuleBasedStateMachine):
    """Any order of facts, whether it makes sense or not, as long as each fact is about something that exists."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.experiments: list[int] = []
        self.trials: list[str] = []
        self.stopped: set[str] = set()
        self.awaiting: list[str] = []

    @initialize(slots=st.integers(1, 4))
    def start(self, slots: int) -> None:
        self.driver.feed(joined("a", slots))

    @rule(
        size=st.integers(0, 3),
        priority=st.sampled_from(PRIORITIES),
        limit=st.sampled_from([None, None, 2, 4]),
        pool=st.sampled_from(POOLS + POOLS[:1] * 3),
    )
    def submit(self, size: int, priority: int, limit: int | None, pool: str) -> None:
        if len(self.experiments) < 6:
            self.experiments.append(len(self.experiments) + 1)
            most = limit if size else None
            self.driver.feed(submitted(self.experiments[-1], slots=size, priority=priority, max_slots=most, pool=pool))

    @precondition(lambda self: self.experiments)
    @rule(data=st.data(), count=st.integers(1, 3))
    def request(self, data: st.DataObject, count: int) -> None:
        experiment = data.draw(st.sampled_from(self.experiments))
        first = sum(trial.startswith(f"{experiment}-") for trial in self.trials) + 1
        numbers = list(range(first, first + count))
        self.trials += [f"{experiment}-{number}" for number in numbers]
        self.driver.feed(*requested(experiment, *numbers))

    @precondition(lambda self: len(self.stopped) < len(self.trials))
    @rule(data=st.data(), what=st.sampled_from(["pause", "extend", "stop"]))
    def search(self, data: st.DataObject, what: str) -> None:
        trial = data.draw(st.sampled_from([trial for trial in self.trials if trial not in self.stopped]))
        if what == "stop":
            self.stopped.add(trial)
        self.driver.feed({"pause": paused, "extend": extended, "stop": stopped}[what](trial))

    @precondition(lambda self: self.driver.state.allocations)
    @rule(data=st.data(), outcome=st.sampled_from(["finished", "preempted", "paused", "failed", "lost"]))
    def exit(self, data: st.DataObject, outcome: str) -> None:
        allocation = data.draw(st.sampled_from(sorted(self.driver.state.allocations)))
        if outcome == "failed":
            self.awaiting.append(allocation)
        self.driver.feed(exited(allocation, outcome))  # type: ignore[arg-type]

    @precondition(lambda self: self.awaiting)
    @rule(final=st.sampled_from([False, False, True]))
    def verdict(self, final: bool) -> None:
        self.driver.feed(failed(self.awaiting.pop(0), final=final))

    @rule(
        agent=st.sampled_from(AGENTS),
        slots=st.integers(1, 4),
        pool=st.sampled_from(POOLS),
        kind=st.sampled_from(["cpu", "cpu", "cuda"]),
        auxiliary_max=st.sampled_from([0, 1, 2, 100]),
    )
    def join(self, agent: str, slots: int, pool: str, kind: str, auxiliary_max: int) -> None:
        self.driver.feed(joined(agent, slots, pool=pool, kind=kind, auxiliary_max=auxiliary_max))

    @rule(agent=st.sampled_from(AGENTS), slot=st.integers(0, 3), what=st.sampled_from(["lose", "drain", "disable", "enable"]))
    def trouble(self, agent: str, slot: int, what: str) -> None:
        if agent in self.driver.state.agents:
            self.driver.feed(
                {
                    "lose": AgentLost(agent_id=agent, reason="lease"),
                    "drain": SlotsClosed(agent_id=agent, drain=True),
                    "disable": SlotsClosed(agent_id=agent, slot_id=slot, drain=True),
                    "enable": SlotsOpened(agent_id=agent),
                }[what]
            )

    @precondition(lambda self: self.experiments)
    @rule(data=st.data(), what=st.sampled_from(["pause", "resume", "resume", "priority", "limit", "cancel"]))
    def ask(self, data: st.DataObject, what: str) -> None:
        experiment = data.draw(st.sampled_from(self.experiments))
        self.driver.feed(
            {
                "pause": ExperimentPauseRequested(experiment_id=experiment),
                "resume": ExperimentResumeRequested(experiment_id=experiment),
                "priority": ExperimentPriorityChanged(experiment_id=experiment, priority=data.draw(st.sampled_from(PRIORITIES))),
                "limit": ExperimentSlotLimitChanged(experiment_id=experiment, max_slots=data.draw(st.sampled_from([None, 1, 3]))),
                "cancel": ExperimentCancelRequested(experiment_id=experiment),
            }[what]
        )

    @invariant()
    def nothing_is_left_undone(self) -> None:
        """Decisions are complete: deciding on the last input again yields nothing more."""
        log = self.driver.log
        inputs = [event for event in log if event.type not in self.driver.core.emits]
        if inputs and inputs[-1].type != "WorkersExited":
            assert list(self.driver.core.decide(self.driver.state, inputs[-1])) == []

    def judge(self) -> list[str]:
        return judge(self.driver.log)

    def teardown(self) -> None:
        log = self.driver.log
        wrong = self.judge()
        assert not wrong, wrong[:5]
        assert [text for text in broken_rules(log) if not text.startswith(("trial", "WorkersExited"))] == []
        state = fold(self.driver.core, log)
        assert self.driver.core.dump(state) == self.driver.core.dump(self.driver.state)
        assert state == self.driver.state
        verdict = verify_decisions(self.driver.core, log)
        assert verdict.divergences == []


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # `explain` traces every line: minutes here
)


class AnyPolicy(AnyHistory):
    """The same under every policy, with constraints, quotas, loans between pools and what users change live. The second model
    knows the priority policy only; here the invariants, and replay, are what is held."""

    @initialize(slots=st.integers(1, 4), policies=st.lists(st.sampled_from(["priority", "fair_share", "fifo"]), min_size=2))
    def start(self, slots: int, policies: list[str] = ["priority"]) -> None:  # noqa: B006 - never changed
        for pool, policy in zip(POOLS, policies, strict=False):
            self.set_policy(pool, policy, None)
        self.driver.feed(joined("a", slots))

    @rule(
        pool=st.sampled_from(POOLS),
        policy=st.sampled_from(["priority", "fair_share", "fifo"]),
        hours=st.sampled_from([None, 1e-6, 1.0]),
    )
    def set_policy(self, pool: str, policy: str, hours: float | None) -> None:
        self.driver.feed(PoolPolicyChanged.model_validate({"pool": pool, "policy": policy, "usage_half_life_hours": hours}))

    @rule(
        size=st.integers(0, 3),
        user=st.sampled_from(["ada", "bob"]),
        workspace=st.sampled_from(["x", "y"]),
        preemptible=st.sampled_from([True, True, False]),
        expected=st.sampled_from([None, 1e-6, 1e-5, 100.0]),
        locality=st.sampled_from(["any", "any", "agent", "rack"]),
        placement=st.sampled_from(["pack", "spread"]),
        fallback=st.booleans(),
        weight=st.sampled_from([1.0, 3.0]),
        more=st.sampled_from([0, 0, 1, 5]),
        image=st.sampled_from([None, None, *IMAGES]),
    )
    def submit_with(self, size: int, user: str, expected: float | None, fallback: bool, more: int, **resources: Any) -> None:
        if len(self.experiments) < 9:
            self.experiments.append(len(self.experiments) + 1)
            resources["fallback_pools"] = ["other"] if fallback else []
            if more and size:
                resources["slots_per_trial"] = {"min": size, "max": size + more, "keep_seconds": 1e-5 * more}
            self.driver.feed(submitted(self.experiments[-1], slots=size, user=user, expected=expected, **resources))

    @rule(
        agent=st.sampled_from(AGENTS), slots=st.integers(1, 4), pool=st.sampled_from(POOLS), image=st.sampled_from(["", *IMAGES]),
        docker=st.booleans(),
    )  # fmt: skip
    def join_in_image(self, agent: str, slots: int, pool: str, image: str, docker: bool) -> None:
        if agent not in self.driver.state.agents:  # one that comes again is in its image as before, or has another name
            runtimes = ("process", "docker") if docker and not image else ("process",)
            self.driver.feed(joined(agent, slots, pool=pool, image=image, runtimes=runtimes))

    @precondition(lambda self: self.experiments)
    @rule(data=st.data(), place=st.floats(0, 9), pool=st.sampled_from(POOLS), what=st.sampled_from(["move", "pool", "weight"]))
    def change(self, data: st.DataObject, place: float, pool: str, what: str) -> None:
        experiment = data.draw(st.sampled_from(self.experiments))
        self.driver.feed(
            {
                "move": ExperimentMoved(experiment_id=experiment, place=place),
                "pool": ExperimentPoolChanged(experiment_id=experiment, pool=pool),
                "weight": ExperimentWeightChanged(experiment_id=experiment, weight=place + 1),
            }[what]
        )

    @rule(agent=st.sampled_from(AGENTS), slot=st.sampled_from([None, 0, 1]), drain=st.booleans(), opened=st.booleans())
    def close(self, agent: str, slot: int | None, drain: bool, opened: bool) -> None:
        closed = SlotsClosed(agent_id=agent, slot_id=slot, drain=drain)
        self.driver.feed(SlotsOpened(agent_id=agent, slot_id=slot) if opened else closed)

    @rule(owner=st.sampled_from([("user", "ada"), ("workspace", "x")]), limit=st.sampled_from([None, 1, 3]))
    def share(self, owner: tuple[str, str], limit: int | None) -> None:
        self.driver.feed(ShareChanged.model_validate({"owner": owner[0], "name": owner[1], "weight": 2.0, "max_slots": limit}))

    @precondition(lambda self: self.driver.state.allocations)
    @rule(data=st.data())
    def save(self, data: st.DataObject) -> None:
        allocation = data.draw(st.sampled_from(sorted(self.driver.state.allocations)))
        self.driver.feed(
            CheckpointSaved(
                trial_id=allocation.rsplit("-", 1)[0], allocation_id=allocation,
                checkpoint_id=f"c{len(self.driver.log)}", batches=1, length=1,
                files=(), size_bytes=0, location="x",
            )
        )  # fmt: skip

    @rule(microseconds=st.sampled_from([1, 10, 1_000_000, 4_000_000_000]))
    def wait(self, microseconds: int) -> None:
        self.driver.time_passes(microseconds)

    @invariant()
    def nothing_is_left_undone(self) -> None:
        """Quotas that were lowered, and time that passed, may let more follow from the same input: see `reasons_hold`."""

    @invariant()
    def reasons_hold(self) -> None:
        """Asking why trials wait changes nothing and answers for every experiment that waits."""
        state = self.driver.state
        for name in sorted(state.pools):
            waiting = explain(state, name, self.driver.now_us)
            assert [row for row in waiting if bool(row.text) != bool(row.trials_waiting or row.trials_leaving)] == []
            pool, now_us = state.pools[name], self.driver.now_us
            known, anew = divided(state, pool, now_us), divided_with(state, pool, now_us, RememberedTargets())
            assert (known.targets, known.below, known.above) == (anew.targets, anew.below, anew.above), (
                "what is remembered is stale"
            )
            over = {key: pool.held.get(key, 0) - anew.targets.get(key, 0) for key in sorted({*pool.held, *anew.targets})}
            assert anew.below == {key for key, slots in over.items() if slots < 0}
            assert anew.above == {key for key, slots in over.items() if slots > 0}

    @invariant()
    def giving_way_changes_no_share(self) -> None:
        """If it did, a gang would be entitled to slots while others leave for it, and no more when they wait again."""
        state = self.driver.state
        for item in sorted(state.allocations)[:GIVES_WAY_MAX]:
            allocation = state.allocations[item]
            experiment = state.experiments[allocation.experiment_id]
            if allocation.leaving or not gives_way(experiment, allocation) or not self._comes_back(allocation):
                continue
            trial = f"{experiment.experiment_id}-{allocation.trial_number}"
            preempted = AllocationPreempted(
                pool=allocation.pool, allocation_id=item, trial_id=trial, experiment_id=experiment.experiment_id, reason=WHY
            )
            shares = [
                +Counter(divided_with(now, now.pools[allocation.pool], self.driver.now_us, RememberedTargets()).targets)
                for now in (state, apply(state, preempted, self.driver.now_us))
            ]
            assert shares[0] == shares[1], f"{item} gives way"
            released = AllocationReleased(
                pool=allocation.pool, allocation_id=item, trial_id=trial, experiment_id=experiment.experiment_id, reason=WHY
            )
            left = apply(apply(state, preempted, self.driver.now_us), released, self.driver.now_us)
            here = self._use_counted(state, allocation)
            before, after = (self._turns(now, allocation.pool) - {experiment.experiment_id} for now in (here, left))
            assert before == after, f"{item} has given way"

    def _comes_back(self, allocation: Allocation) -> bool:
        """True if its trial still wants slots there, and its experiment could be granted its present slots again: not after its
        owner's limit was lowered, or slots that it may use were closed, below it."""
        state, experiment = self.driver.state, self.driver.state.experiments[allocation.experiment_id]
        pool, gang = pool_of(state, allocation.pool), experiment.slots_per_trial
        if experiment.trials[allocation.trial_number].phase != "wanted" or not experiment.open or not gang:
            return False
        shares = [state.shares.get(f"user/{experiment.user}"), state.shares.get(f"workspace/{experiment.workspace}")]
        limits = [share.max_slots for share in shares if share is not None and share.max_slots is not None]
        reach = reach_of(state, pool, for_trial(experiment, allocation.trial_number).constraints, gang)
        room = min(limits, default=pool.capacity)
        room = min(room, reach.slots if experiment.elastic else reach.gangs * gang)
        return experiment.pool == allocation.pool and reach.gangs > 0 and pool.held.get(experiment.experiment_id, 0) <= room

    def _use_counted(self, state: State, allocation: Allocation) -> State:
        """The state with the use of the allocation's owners counted up to now, as its release counts it: shares by use change
        with that, whoever gives way."""
        usage, half_life_us = state.usage, policy_of(state, allocation.pool).half_life_us
        for key in usage_keys(allocation.pool, state.experiments[allocation.experiment_id]):
            if key in usage:
                usage = usage.set(key, settle(usage[key], self.driver.now_us, half_life_us))
        return replaced(state, usage=usage)

    def _turns(self, state: State, name: str) -> set[int]:
        """Whose turn it is under fair share."""
        pool, now_us = state.pools[name], self.driver.now_us
        known = divided_with(state, pool, now_us, RememberedTargets())
        return set(with_turns(state, pool, known, now_us, lambda item: not quota_binds(state, known, item)).turns)

    def judge(self) -> list[str]:
        """Images alone: an agent may come again with other slots here, of which the other promises know nothing."""
        promises = Promises(preemptions_max=1_000)
        for event in self.driver.log:
            promises.hear(event.data)
        return [text for text in promises.wrong if " in image " in text]


TestAnyPolicy = AnyPolicy.TestCase
TestAnyPolicy.settings = settings(TestAnyHistory.settings, max_examples=120)
