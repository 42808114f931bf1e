"""Random histories for the scheduler's core, with everything that it knows, and what must hold in each.

A history is a list of steps that make sense in any order, so that a failing one can be made short: `shrunk`. To look for more:

    python -m tests.support.scheduler_histories --seed 1 --seconds 60
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.pool import AllocationResized
from tenuto.schemas.events.request import (
    ExperimentMoved,
    ExperimentPauseRequested,
    ExperimentPriorityChanged,
    ExperimentResumeRequested,
    ExperimentSlotLimitChanged,
    PoolPolicyChanged,
    ShareChanged,
    SlotsClosed,
    SlotsOpened,
)
from tests.support.scheduler_driver import Driver, exited, joined, requested, short, stopped, submitted
from tests.support.scheduler_promises import Livelock, Promises

POLICIES = ("priority", "fair_share", "fifo")
FEATURES = ("two pools", "elastic", "rigid", "foretold", "quotas", "limits", "constraints", "closed")
STEPS = 40
EXPERIMENTS_MAX = 7
EXCHANGES_MAX = 60
"""Rounds of exchange after which all preempted trials have left; a history has at most 24 slots."""
SECOND = 1_000_000
NOWHERE = 100
"""First number of the experiments that can never start."""


@dataclass(frozen=True)
class Facts:
    data: tuple[EventData, ...]


@dataclass(frozen=True)
class End:
    """A running trial ends: the one at this part of them all, so that it means something in any history."""

    at: float


@dataclass(frozen=True)
class Wait:
    microseconds: int


Step = Facts | End | Wait


class Broken(Exception):
    """A violated invariant. `kind`: the same for all failures of one sort."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def history(seed: int, policy: str, without: tuple[str, ...] = ()) -> list[Step]:
    draw = random.Random(seed)
    features = {feature for feature in FEATURES if draw.random() < 0.4}.difference(without)
    pools = ("default", "other") if "two pools" in features else ("default",)
    policies = [policy, draw.choice(POLICIES)]
    steps: list[Step] = [Facts((_policy(pool, policies[at]),)) for at, pool in enumerate(pools)]
    agents = []
    for pool in pools:
        for number in range(draw.randint(1, 4 if pool == "default" else 2)):
            agents.append(f"{pool[0]}{number}")
            labels = (f"rack={number // 2}",) if "constraints" in features else ()
            steps.append(Facts((joined(agents[-1], draw.randint(1, 4), pool=pool, labels=labels),)))
    experiments = 0
    for _ in range(STEPS):
        kind = draw.random()
        if kind < 0.3 and experiments < EXPERIMENTS_MAX:
            experiments += 1
            steps.append(_arrival(draw, experiments, features))
        elif kind < 0.6:
            steps.append(End(draw.random()))
        elif kind < 0.85:
            changed = _change(draw, experiments, agents, features)
            steps += [Facts((changed,))] if changed else []
        else:
            steps.append(Wait(draw.choice((SECOND, 10 * SECOND))))
    return steps


def with_nowhere(steps: list[Step], seed: int) -> list[Step]:
    """The same history, with experiments that no agent of it could ever run, of users who have others and of one who has not."""
    draw = random.Random(f"nowhere {seed}")
    found = list(steps)
    asked: tuple[dict[str, Any], ...] = (
        {"agent_labels": ["nowhere=1"]},
        {"device": "none"},
        {"slots": 5, "locality": "agent"},
        {"slots": 100},
        {"slots": {"min": 5, "max": 9}, "locality": "agent"},
        {"locality": "rack", "slots": 9},
        {"exclude_agents": [f"{pool}{number}" for pool in "do" for number in range(4)]},
    )
    pools = {data.pool for step in steps if isinstance(step, Facts) for data in step.data if isinstance(data, AgentJoined)}
    for number in range(NOWHERE, NOWHERE + draw.randint(1, 4)):
        whom = {"user": draw.choice("xyzn"), "priority": draw.choice((10, 42, 60)), "pool": draw.choice(sorted(pools))}
        arrival = Facts((submitted(number, **whom, **draw.choice(asked)), *requested(number, *range(1, draw.randint(2, 6)))))
        found.insert(draw.randint(len(pools), len(found)), arrival)
    return found


def _policy(pool: str, policy: str) -> EventData:
    return PoolPolicyChanged.model_validate({"pool": pool, "policy": policy})


def _arrival(draw: random.Random, number: int, features: set[str]) -> Step:
    more: dict[str, Any] = {}
    slots: Any = draw.randint(1, 5)
    if "elastic" in features and draw.random() < 0.5:
        slots = {"min": draw.randint(1, 2), "max": draw.randint(3, 6), "keep_seconds": draw.choice((0, 5))}
    if "rigid" in features and draw.random() < 0.3:
        more["preemptible"] = False
    if "foretold" in features and draw.random() < 0.7:
        more["expected"] = draw.choice((5, 20, 100))
    if "constraints" in features and draw.random() < 0.3:
        more["locality"] = draw.choice(("agent", "rack"))
    if "limits" in features and draw.random() < 0.3:
        more["max_slots"] = 6
    if "two pools" in features:
        more["pool"], fallback = draw.choice((("default", "other"), ("default", ""), ("other", ""), ("other", "default")))
        more["fallback_pools"] = [fallback] if fallback else []
    trials = draw.randint(1, 5)
    searcher = {
        "name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": trials, "max_length": {"batches": 100},
    }  # fmt: skip
    whom = {"user": draw.choice("xyz"), "priority": draw.choice((10, 42, 42, 60))}
    return Facts((submitted(number, slots=slots, searcher=searcher, **whom, **more), *requested(number, *range(1, trials + 1))))


def _change(draw: random.Random, experiments: int, agents: list[str], features: set[str]) -> EventData | None:
    what = draw.choice(("quota", "limit", "close", "open", "priority", "move", "pause", "resume"))
    if what == "quota" and "quotas" in features:
        return ShareChanged(owner="user", name=draw.choice("xyz"), max_slots=draw.choice((None, 2, 6)))
    if what in ("close", "open") and "closed" in features:
        agent = draw.choice(agents)
        slot = draw.choice((0, 0, 1, None))
        if what == "open":
            return SlotsOpened(agent_id=agent, slot_id=None)
        return SlotsClosed(agent_id=agent, slot_id=slot, drain=draw.random() < 0.5)
    if not experiments:
        return None
    key = draw.randint(1, experiments)
    if what == "limit" and "limits" in features:
        return ExperimentSlotLimitChanged(experiment_id=key, max_slots=draw.choice((None, 3, 6)))
    if what == "priority":
        return ExperimentPriorityChanged(experiment_id=key, priority=draw.choice((10, 42, 60)))
    if what == "move":
        return ExperimentMoved(experiment_id=key, place=draw.random() * EXPERIMENTS_MAX)
    if what == "pause":
        return ExperimentPauseRequested(experiment_id=key)
    return ExperimentResumeRequested(experiment_id=key) if what == "resume" else None


def play(steps: list[Step], *, complete: bool = True) -> Driver:
    """Raises Broken. `complete`: also where a plan of all pools would decide more.

    After each step all who were told to leave do so, until nobody is: that must come to an end soon. Then planning all pools
    anew must decide nothing, for the same time and state. Only growth is left out: elastic trials grow when they may again."""
    driver, promises, heard = Driver(checks=False), Promises(), 0
    submitted_ids: set[int] = set()
    for step in steps:
        if isinstance(step, Wait):
            driver.time_passes(step.microseconds)
            _exchange(driver)
        elif isinstance(step, End):
            running = [key for key in sorted(driver.state.allocations) if not driver.state.allocations[key].leaving]
            if running:
                item = running[int(step.at * len(running))]
                driver.feed(stopped(item.rsplit("-", 1)[0]), exited(item))
        elif all(_concerns(data, submitted_ids, driver) for data in step.data):
            submitted_ids |= {key for key in (getattr(data, "experiment_id", None) for data in step.data) if key is not None}
            driver.feed(*step.data)
        _exchange(driver)
        again = [data for data in _planned(driver) if not isinstance(data, AllocationResized)]
        if again and complete and not isinstance(step, Wait):
            raise Broken("missed", f"{short(again)} follow only from a plan of all pools after {step}")
        _exchange(driver)
        try:
            for event in driver.log[heard:]:
                promises.hear(event.data)
        except Livelock:
            pass
        heard = len(driver.log)
        if promises.wrong:
            raise Broken("promise", promises.wrong[0])
    driver.core.check(driver.state)
    return driver


def _planned(driver: Driver) -> list[EventData]:
    """Decisions on an event that changes nothing but makes the scheduler plan all pools."""
    return driver.feed(ShareChanged(owner="workspace", name="nobody"))


def _concerns(data: EventData, known: set[int], driver: Driver) -> bool:
    """False for a change of something that is absent, as in a shortened history."""
    key = getattr(data, "experiment_id", None)
    if data.TYPE in ("ExperimentSubmitted", "TrialRequested"):
        return True
    return (key is None or key in known) and (
        data.TYPE not in ("SlotsClosed", "SlotsOpened") or data.agent_id in driver.state.agents
    )  # type: ignore[attr-defined]


def _exchange(driver: Driver) -> None:
    said: list[list[str]] = []
    for _ in range(EXCHANGES_MAX):
        leaving = [key for key in sorted(driver.state.allocations) if driver.state.allocations[key].leaving]
        if not leaving:
            return
        decided: list[EventData] = []
        for key in leaving:
            if key in driver.state.allocations:
                decided += driver.feed(exited(key, "preempted"))
        said.append(short(decided))
    raise Broken("livelock", f"{said[-2:]} for ever")


def failure(steps: list[Step], *, complete: bool = True) -> Broken | None:
    try:
        play(steps, complete=complete)
    except Broken as broken:
        return broken
    return None


def shrunk(steps: list[Step], kind: str, found: Callable[[list[Step]], Broken | None] = failure) -> list[Step]:
    """A shorter history with the same kind of failure: parts are left out as long as it fails (Zeller, Hildebrandt 2002)."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            shorter = steps[:at] + steps[at + size :]
            broken = found(shorter)
            if broken is not None and broken.kind == kind:
                steps = shorter
            else:
                at += size
        size //= 2
    return steps


def said(step: Step) -> str:
    """The step in one line."""
    if not isinstance(step, Facts):
        return repr(step)
    words = []
    for data in step.data:
        if data.TYPE == "ExperimentSubmitted":
            resources = data.config.resources.model_dump(mode="json", exclude_defaults=True)  # type: ignore[attr-defined]
            words.append(f"submit {data.experiment_id} of {data.user} {resources}")  # type: ignore[attr-defined]
        elif data.TYPE == "AgentJoined":
            words.append(f"join {data.agent_id} of {data.pool} with {len(data.slots)} {data.labels}")  # type: ignore[attr-defined]
        elif data.TYPE == "TrialRequested":
            words.append(data.trial_id)  # type: ignore[attr-defined]
        else:
            words.append(repr(data))
    return ", ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--policy", choices=POLICIES)
    parser.add_argument("--without", choices=FEATURES, action="append", default=[])
    parser.add_argument("--shown", type=int, default=1, help="shrunk histories of each kind")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    seed, until = given.seed, time.monotonic() + given.seconds
    while time.monotonic() < until:
        policy = given.policy or POLICIES[seed % len(POLICIES)]
        steps = history(seed, policy, tuple(given.without))
        broken = failure(steps)
        counts["histories"] += 1
        if broken is not None:
            kind = f"{policy}: {broken.kind}"
            counts[kind] += 1
            if counts[kind] <= given.shown:
                steps = shrunk(steps, broken.kind)
                print(f"seed {seed}, {policy}: {failure(steps)}", *map(said, steps), sep="\n    ", flush=True)
        seed += 1
    print(dict(counts))


if __name__ == "__main__":
    main()
