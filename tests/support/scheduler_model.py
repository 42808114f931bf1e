"""A second, naive model of what the scheduler may do, written from its rules and sharing no code with it: plain dictionaries,
everything recounted from nothing. It judges a log, not a state: each own event by the inputs up to its `seen_position`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tenuto.schemas.envelope import Event

OWN = {"AllocationGranted", "AllocationPreempted", "AllocationReleased", "SlotsReserved"}


@dataclass
class Model:
    experiments: dict[int, dict[str, Any]] = field(default_factory=dict)
    trials: dict[str, dict[str, Any]] = field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    closed: set[tuple[str, int | None]] = field(default_factory=set)
    """(agent, slot) out of service; no slot: the whole agent."""

    # What others did.

    def fold_input(self, event: Event) -> None:
        data: Any = event.data
        kind = event.type
        if kind == "ExperimentSubmitted":
            resources = data.config.resources
            self.experiments[data.experiment_id] = {
                "pool": resources.pool, "priority": resources.priority, "size": resources.slots_per_trial,
                "max": resources.max_slots, "paused": False, "over": False, "place": float(data.experiment_id),
                "owner": (resources.workspace, data.user), "reserved": False,
            }  # fmt: skip
        elif kind in ("ExperimentPauseRequested", "ExperimentResumeRequested"):
            paused = kind == "ExperimentPauseRequested"
            self.experiments[data.experiment_id].update({"paused": True, "reserved": False} if paused else {"paused": False})
        elif kind == "ExperimentPriorityChanged":
            self.experiments[data.experiment_id].update(priority=data.priority, reserved=False)
        elif kind == "ExperimentMoved":
            self.experiments[data.experiment_id].update(place=data.place, reserved=False)
        elif kind == "ExperimentSlotLimitChanged":
            self.experiments[data.experiment_id]["max"] = data.max_slots
        elif kind in ("ExperimentCancelRequested", "ExperimentCompleted", "ExperimentFailed", "ExperimentCanceled"):
            self.experiments[data.experiment_id]["over"] = True
        elif kind == "TrialRequested":
            self.trials[data.trial_id] = {
                "experiment": data.experiment_id, "number": data.trial_number, "wanted": True, "over": False, "verdict": None,
                "grants": 0,
            }  # fmt: skip
        elif kind == "TrialExtended":
            self.trials[data.trial_id]["wanted"] = True
        elif kind == "TrialPaused":
            self.trials[data.trial_id]["wanted"] = False
        elif kind == "TrialStopped":
            self.trials[data.trial_id].update(wanted=False, over=True)
        elif kind == "TrialFailed":
            trial = self.trials[data.trial_id]
            trial["given_up"] = trial.get("given_up", False) or data.final
            if trial["verdict"] == data.allocation_id:
                trial["verdict"] = None
        elif kind == "WorkersExited":
            if data.allocation_id in self.live:
                self.live[data.allocation_id]["exited"] = True
                if data.outcome == "failed":
                    self.trials[data.trial_id]["verdict"] = data.allocation_id
                if data.outcome == "failed" or data.restart_at_us is not None:
                    pauses = data.restart_at_us is not None
                    self.trials[data.trial_id]["pause_of"] = data.allocation_id if pauses else None
        elif kind == "RestartPauseEnded":
            if self.trials[data.trial_id].get("pause_of") == data.allocation_id:
                self.trials[data.trial_id]["pause_of"] = None
        elif kind == "SlotsClosed":
            self.closed.add((data.agent_id, data.slot_id))
        elif kind == "SlotsOpened":
            self.closed = {slot for slot in self.closed if slot[0] != data.agent_id or data.slot_id not in (None, slot[1])}
        elif event.stream.startswith("agent/"):
            self._fold_agent(kind, data)

    def _fold_agent(self, kind: str, data: Any) -> None:
        agent = self.agents.get(data.agent_id)
        if kind == "AgentJoined":
            gpus = [slot.slot_id for slot in data.slots if slot.kind == "cuda"]
            self.agents[data.agent_id] = {
                "pool": data.pool, "lost": False, "kind": "cuda" if gpus else "cpu",
                "slots": set(gpus or [slot.slot_id for slot in data.slots]),
                "auxiliary_max": data.auxiliary_trials_max,
            }  # fmt: skip
        elif agent is None or agent["lost"]:
            return
        elif kind == "AgentLost":
            agent["lost"] = True
            for allocation in self.live.values():
                if data.agent_id in allocation["agents"]:
                    allocation["agent_lost"] = True

    # What can be counted.

    def offered(self, pool: str) -> set[tuple[str, int]]:
        members = {name: agent for name, agent in self.agents.items() if agent["pool"] == pool and not agent["lost"]}
        kind = "cuda" if any(agent["kind"] == "cuda" for agent in members.values()) else "cpu"
        return {
            (name, slot)
            for name, agent in members.items()
            if agent["kind"] == kind and (name, None) not in self.closed
            for slot in agent["slots"]
            if (name, slot) not in self.closed
        }

    def auxiliary(self, pool: str) -> dict[str, int]:
        """Agent -> how many trials without slots it has, of the agents that take one more."""
        counts = {
            name: sum(not allocation["slots"] and name in allocation["agents"] for allocation in self.live.values())
            for name, agent in self.agents.items()
            if agent["pool"] == pool and not agent["lost"] and (name, None) not in self.closed
        }
        return {name: count for name, count in counts.items() if count < self.agents[name]["auxiliary_max"]}

    def free(self, pool: str) -> set[tuple[str, int]]:
        return self.offered(pool) - {slot for allocation in self.live.values() for slot in allocation["slots"]}

    def leaving(self, allocation: dict[str, Any]) -> bool:
        trial = self.trials[allocation["trial"]]
        over = self.experiments[trial["experiment"]]["over"] or trial["over"] or not trial["wanted"]
        return over or any(allocation.get(mark) for mark in ("preempted", "exited", "agent_lost"))

    def coming_back(self, pool: str, allocation: dict[str, Any]) -> int:
        """None of an allocation of another pool, whose agent has moved here: rare, and not worth a rule."""
        return len(self.offered(pool) & set(allocation["slots"])) if allocation["pool"] == pool else 0

    def priority(self, trial: str) -> int:
        return self.experiments[self.trials[trial]["experiment"]]["priority"]

    def used(self, experiment: int) -> int:
        return sum(len(a["slots"]) for a in self.live.values() if self.trials[a["trial"]]["experiment"] == experiment)

    def holds(self, pool: str, owner: tuple[str, str]) -> int:
        """Slots of an owner's allocations that stay."""
        return sum(
            len(allocation["slots"])
            for allocation in self.live.values()
            if allocation["pool"] == pool and not self.leaving(allocation) and self.owner(allocation["trial"]) == owner
        )

    def owner(self, trial: str) -> tuple[str, str]:
        return self.experiments[self.trials[trial]["experiment"]]["owner"]  # type: ignore[no-any-return]

    def before(self, pool: str, one: tuple[int, int, int, str, int], other: tuple[int, int, int, str, int]) -> bool:
        """True if one demand is served before another of the same priority: among one owner's, by place; among several owners',
        the demand of the owner that holds less, unless slots are reserved for the other."""
        facts, others = self.experiments[one[1]], self.experiments[other[1]]
        places = (facts["place"], *one[1:3]) < (others["place"], *other[1:3])
        if facts["owner"] == others["owner"]:
            return places
        if facts["reserved"] or others["reserved"]:
            return bool(facts["reserved"])
        held, other_held = self.holds(pool, facts["owner"]), self.holds(pool, others["owner"])
        return held < other_held or (held == other_held and places)

    def demands(self, pool: str) -> list[tuple[int, int, int, str, int]]:
        """(priority, experiment, number, trial, slots) of what may be granted, sorted; the slot limit not yet looked at."""
        busy = {allocation["trial"] for allocation in self.live.values()}
        found = []
        for name, trial in self.trials.items():
            experiment = self.experiments[trial["experiment"]]
            blocked = experiment["paused"] or experiment["over"] or trial["over"] or trial.get("given_up") or trial["verdict"]
            blocked = blocked or trial.get("pause_of")
            if trial["wanted"] and not blocked and name not in busy and experiment["pool"] == pool:
                found.append((experiment["priority"], trial["experiment"], trial["number"], name, experiment["size"]))
        return sorted(found)

    def may_start(self, experiment: int) -> bool:
        facts = self.experiments[experiment]
        fits_limit = facts["max"] is None or self.used(experiment) + facts["size"] <= facts["max"]
        return fits_limit and facts["size"] <= len(self.offered(facts["pool"]))

    # What the scheduler did.

    def fold_own(self, event: Event) -> Iterable[str]:
        data: Any = event.data
        if event.type == "AllocationGranted":
            yield from self._granted(data)
        elif event.type == "SlotsReserved":
            if data.trial_id not in [demand[3] for demand in self.demands(data.pool)]:
                yield f"slots are reserved for {data.trial_id}, which may not be granted"
            self.experiments[data.experiment_id]["reserved"] = True
        elif event.type == "AllocationPreempted":
            allocation = self.live.get(data.allocation_id)
            if allocation is None or self.leaving(allocation):
                yield f"{data.allocation_id} was preempted though it was not running"
            else:
                if data.reason.rule == "priority.preempts":
                    yield from self._preempted(data, allocation)
                allocation["preempted"] = True
        elif self.live.pop(data.allocation_id, None) is None:
            yield f"{data.allocation_id} was released though it was not live"

    def _granted(self, data: Any) -> Iterable[str]:
        trial = self.trials[data.trial_id]
        experiment = self.experiments[trial["experiment"]]
        slots = [(part.agent_id, slot) for part in data.slots for slot in part.slot_ids]
        if data.trial_id not in [demand[3] for demand in self.demands(data.pool)]:
            yield f"{data.allocation_id}: its trial is blocked, stopped or has slots already"
        if data.pool != experiment["pool"] or not set(slots) <= self.free(data.pool):
            yield f"{data.allocation_id}: not all of {slots} were free in its pool"
        if not experiment["size"]:
            counts, agents = self.auxiliary(data.pool), [part.agent_id for part in data.slots]
            if len(agents) != 1 or agents[0] not in counts or counts[agents[0]] > min(counts.values()):
                yield f"{data.allocation_id}: {agents} is not the one agent that has the fewest trials without slots: {counts}"
        if len(slots) != experiment["size"] or len(set(slots)) != len(slots):
            yield f"{data.allocation_id}: {slots} is not a gang of {experiment['size']}"
        if not self.may_start(trial["experiment"]):
            yield f"{data.allocation_id}: its experiment is at its slot limit"
        yield from self._fair(data, len(slots))
        experiment["reserved"] = False
        trial["grants"] += 1
        if data.allocation_id != f"{data.trial_id}-{trial['grants']}":
            yield f"{data.allocation_id}: should be the trial's allocation {trial['grants']}"
        agents = {part.agent_id for part in data.slots}
        self.live[data.allocation_id] = {"trial": data.trial_id, "pool": data.pool, "slots": slots, "agents": agents}

    def _fair(self, data: Any, size: int) -> Iterable[str]:
        """No other owner that holds less could have had these slots."""
        free, demands = len(self.free(data.pool)), self.demands(data.pool)
        granted = next((demand for demand in demands if demand[3] == data.trial_id), None)
        if granted is None or not size or data.reason.rule != "priority.fits":
            return
        firsts: dict[tuple[str, str], tuple[int, int, int, str, int]] = {}
        for demand in demands:
            if demand[0] == granted[0] and demand[4] and self.may_start(demand[1]):
                first = firsts.setdefault(self.owner(demand[3]), demand)
                if self.before(data.pool, demand, first):
                    firsts[self.owner(demand[3])] = demand
        for demand in firsts.values():
            if demand[4] <= free and demand != granted and self.before(data.pool, demand, granted):
                yield f"{data.trial_id} of priority {granted[0]} was granted slots before {demand[3]}"

    def _preempted(self, data: Any, victim: dict[str, Any]) -> Iterable[str]:
        wanted_by = data.reason.numbers["wanted_by_trial"]
        if self.priority(victim["trial"]) <= self.priority(wanted_by):
            yield f"{data.allocation_id} was preempted for {wanted_by}, which is not more urgent"
        if wanted_by not in [demand[3] for demand in self.demands(data.pool)]:
            yield f"{data.allocation_id} was preempted for {wanted_by}, which may not be granted"

    def check_batch(self, pool: str, preempted: list[Any]) -> Iterable[str]:
        """Judges all decisions on one input together: no preemption without use, no possible start left out."""
        free = len(self.free(pool))
        returning = {name: self.coming_back(pool, a) for name, a in self.live.items() if self.leaving(a)}
        coming = free + sum(returning.values())
        for trial, victims in groupby(preempted, key=lambda data: data.reason.numbers["wanted_by_trial"]):
            size = self.experiments[self.trials[trial]["experiment"]]["size"]
            freed = [returning[data.allocation_id] for data in victims]
            if coming < size:
                yield f"{len(freed)} were preempted for {trial}, and still it does not fit"
            missing = next(data for data in preempted if data.reason.numbers["wanted_by_trial"] == trial).reason.numbers[
                "slots_missing"
            ]
            if sum(freed) - min(freed) >= missing:
                yield f"more than needed were preempted for {trial}: {freed} for {missing}"
        yield from self._work_conserving(pool, free, coming)

    def _work_conserving(self, pool: str, free: int, coming: int) -> Iterable[str]:
        demands = self.demands(pool)
        if self.auxiliary(pool):
            yield from (f"{demand[3]} needs no slots and waits though there is room" for demand in demands if not demand[4])
        startable = [demand for demand in demands if demand[4] and self.may_start(demand[1])]
        for at, (priority, _, _, trial, size) in enumerate(startable):
            if size > free:
                continue
            # It could run; only a more deserving gang, for which the slots are kept, excuses that it does not.
            equals = [d for d in startable if d[0] == priority and d[4] > free and self.before(pool, d, startable[at])]
            if not equals and not any(d[4] > free and d[0] < priority and self._reachable(pool, d, coming) for d in startable):
                yield f"{trial} of priority {priority} waits for {size} slots while {free} are free"
        if startable and startable[0][4] > coming and self._reachable(pool, startable[0], coming):
            yield f"{startable[0][3]} could run by preempting less urgent ones, but nothing was preempted"

    def _reachable(self, pool: str, demand: tuple[int, int, int, str, int], coming: int) -> bool:
        lower = sum(
            self.coming_back(pool, allocation)
            for allocation in self.live.values()
            if not self.leaving(allocation) and self.priority(allocation["trial"]) > demand[0]
        )
        return demand[4] <= coming + lower


def judge(log: Iterable[Event]) -> list[str]:
    """One sentence per broken rule of scheduling; an empty list for a sound record."""
    model, found = Model(), []
    inputs = [event for event in log if event.type not in OWN]
    own: dict[int, list[Event]] = {}
    for event in log:
        if event.type in OWN:
            own.setdefault(event.seen_position, []).append(event)
    decided_upto = max(own, default=0)
    for event in inputs:
        model.fold_input(event)
        answers = own.pop(event.position, [])
        for answer in answers:
            found += [f"at {event.position}: {text}" for text in model.fold_own(answer)]
        if event.position > decided_upto:
            continue
        for pool in sorted({experiment["pool"] for experiment in model.experiments.values()}):
            preempted: list[Any] = [
                answer.data
                for answer in answers
                if answer.type == "AllocationPreempted"
                and answer.data.reason.rule == "priority.preempts"  # type: ignore[attr-defined]
                and answer.data.pool == pool  # type: ignore[attr-defined]
            ]
            found += [f"at {event.position}: {text}" for text in model.check_batch(pool, preempted)]
    found += [f"decisions at {position} answer nothing" for position in own]
    return found
