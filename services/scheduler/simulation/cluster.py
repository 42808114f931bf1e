"""Runs a script under a policy with the scheduler's own core, and measures the outcome."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationResized
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted, PoolPolicyChanged
from tenuto.schemas.events.run import WorkersExited, WorkersOutcome
from tenuto.schemas.events.search import ExperimentCompleted, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.evolve import FOLDS, apply
from tenuto.services.scheduler.policies.shares import ShareNode, divide
from tenuto.services.scheduler.simulation.outcome import Costs, SimulatedTrial, SimulationOutcome
from tenuto.services.scheduler.simulation.script import SimulationScript, TrialScript
from tenuto.services.scheduler.state import State

__all__ = ["Costs", "SimulatedCluster", "SimulationOutcome", "utilisation_bound"]

NO_ID = UUID(int=0)
SIMULATED = Reason(rule="simulated")
EVENTS_PER_TRIAL_MAX = 20_000
"""Five months of a checkpoint every ten minutes; a script that never ends is stopped there, while its history fits in memory."""


class SimulatedCluster:
    def __init__(
        self,
        script: SimulationScript,
        policy: str | None,
        costs: Costs,
        *,
        seed: int = 0,
        keep_history: bool = False,
        checks: bool = False,
        observer: Callable[[EventData], None] | None = None,
    ) -> None:
        """`policy`: of all pools; None: the script's own. `observer` hears every event that the scheduler reads or decides, in
        order."""
        self.observer = observer
        self.script, self.costs, self.keep_history, self.checks = script, costs, keep_history, checks
        self.core = SchedulerCore()
        self.state: State = self.core.initial()
        self.random = random.Random(seed)
        self.outcome = SimulationOutcome(policy or "recorded")
        self.trials: dict[str, SimulatedTrial] = {}
        self.experiments: dict[int, ExperimentSubmitted] = {}
        self.open_trials: dict[int, int] = {}
        self.agents: dict[str, AgentJoined] = {}
        self.running: dict[str, str] = {}
        """Allocation -> trial, of workers that were not told to leave."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.now_us = 0
        self._shares: dict[str, tuple[int, int]] = {}
        self._wanted: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._ideal: dict[str, float] = {}
        self._got: dict[str, float] = {}
        pools = sorted({data.pool for _, data in script.facts if isinstance(data, AgentJoined)} | {"default"}) if policy else []
        start_us = min([time_us for time_us, _ in script.facts] + [trial.arrives_us for trial in script.trials], default=0)
        for pool in pools:
            fact = PoolPolicyChanged.model_validate({"pool": pool, "policy": policy})
            self.at(start_us, lambda fact=fact: self.tell(fact))  # type: ignore[misc]
        for time_us, data in script.facts:
            self.at(time_us, lambda data=data: self._fact(data))  # type: ignore[misc]
        for trial in script.trials:
            self.open_trials[trial.experiment_id] = self.open_trials.get(trial.experiment_id, 0) + 1
            self.at(trial.arrives_us, lambda trial=trial: self._arrive(trial))  # type: ignore[misc]
        self.outcome.start_us = self.now_us = start_us

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (max(time_us, self.now_us), self._number, action))

    def run(self) -> SimulationOutcome:
        """Runs until every trial has ended, or nothing more can happen."""
        left = len(self.script.trials)
        events_max = EVENTS_PER_TRIAL_MAX * left
        while self._queue and left and self.outcome.events < events_max:
            time_us, _, action = heapq.heappop(self._queue)
            self._pass_time(time_us)
            action()
            left = len(self.script.trials) - self._ended
        outcome = self.outcome
        outcome.end_us = self.now_us
        outcome.unfinished = left
        outcome.satisfied = {user: self._got[user] / ideal for user, ideal in sorted(self._ideal.items()) if ideal > 0}
        outcome.waits_us = [
            trial.first_us - trial.script.arrives_us
            for trial in self.trials.values()
            if trial.first_us is not None and trial.slots
        ]
        outcome.bound = utilisation_bound(self)
        return outcome

    def run_on(self, until_us: int) -> None:
        """Carries on after the last trial has ended."""
        while self._queue and self._queue[0][0] <= until_us:
            time_us, _, action = heapq.heappop(self._queue)
            self._pass_time(time_us)
            action()

    _ended = 0

    # What is measured.

    def _pass_time(self, time_us: int) -> None:
        passed = time_us - self.now_us
        if passed > 0:
            capacity = sum(pool.capacity for _, pool in sorted(self.state.pools.items()))
            self.outcome.capacity = max(self.outcome.capacity, capacity)
            self.outcome.offered += capacity * passed
            self.outcome.usable += min(capacity, sum(self._wanted.values())) * passed
            users = [
                ShareNode(at, 1.0, float(self._wanted[user]))
                for at, user in enumerate(sorted(self._wanted))
                if self._wanted[user]
            ]
            names = sorted(self._wanted)
            divide(capacity, users)
            for node in users:
                user = names[node.key]
                self._ideal[user] = self._ideal.get(user, 0.0) + node.share * passed
                # Beyond the share it is a gift: it does not make up for time without slots.
                self._got[user] = self._got.get(user, 0.0) + min(self._held.get(user, 0), node.share) * passed
            self.outcome.held += sum(self._held.values()) * passed
        self.now_us = time_us

    def _count(self, counts: dict[str, int], user: str, slots: int) -> None:
        counts[user] = counts.get(user, 0) + slots

    # The log, in memory.

    def tell(self, data: EventData) -> None:
        self.outcome.events += 1
        if data.TYPE not in FOLDS.consumes:
            return
        event = Event(
            id=NO_ID, stream="", type=data.TYPE, schema_version=data.VERSION, time_us=self.now_us, payload=b"", actor="simulation"
        )
        event.__dict__["data"] = data
        if self.observer:
            self.observer(data)
        self.state = self.core.evolve(self.state, event)
        for decided in self.core.decide(self.state, event):
            self.state = apply(self.state, decided, self.now_us)
            self.outcome.events += 1
            if self.observer:
                self.observer(decided)
            if self.keep_history:
                self.outcome.history.append((self.now_us, decided))
            if isinstance(decided, AllocationGranted):
                self._granted(decided)
            elif isinstance(decided, (AllocationPreempted, AllocationResized)):
                self._told_to_leave(decided)
        if self.checks:
            self.core.check(self.state)

    def _fact(self, data: EventData) -> None:
        if isinstance(data, ExperimentSubmitted):
            if data.experiment_id not in self.open_trials:
                return  # Nothing of it ever ran.
            self.experiments[data.experiment_id] = data
        elif getattr(data, "experiment_id", None) is not None and data.experiment_id not in self.experiments:  # type: ignore[attr-defined]
            return
        elif isinstance(data, AgentJoined):
            fresh = data.agent_id not in self.agents
            self.agents[data.agent_id] = data
            if fresh and self.costs.failures_us:
                self._fail_later(data.agent_id)
        elif isinstance(data, AgentLost):
            self.lose(data.agent_id, data.reason)
            return
        self.tell(data)

    def _arrive(self, script: TrialScript) -> None:
        experiment = self.experiments.get(script.experiment_id)
        if experiment is None:
            self._ended += 1
            return
        resources = experiment.config.resources
        trial = SimulatedTrial(script, resources.slots_min, experiment.user, most=resources.slots_max)
        self.trials[script.trial_id] = trial
        self._count(self._wanted, trial.user, trial.most)
        self.tell(
            TrialRequested(
                experiment_id=script.experiment_id, trial_id=script.trial_id, trial_number=script.number, hyperparameters={},
                seed=0, target_length=1, reason=SIMULATED,
            )
        )  # fmt: skip

    # Workers.

    def _granted(self, data: AllocationGranted) -> None:
        trial = self.trials[data.trial_id]
        trial.granted_us, trial.allocation_id = self.now_us, data.allocation_id
        trial.first_us = self.now_us if trial.first_us is None else trial.first_us
        self.running[data.allocation_id] = data.trial_id
        trial.running = sum(len(part.slot_ids) for part in data.slots)
        self._count(self._held, trial.user, trial.running)
        self.at(
            self.now_us + self.costs.startup_us + self._left_us(data.allocation_id),
            lambda: self._leave(data.allocation_id, "finished"),
        )
        self._save_later(data.allocation_id, self.now_us + self.costs.startup_us + self.costs.checkpoint_us)

    def _save_later(self, item: str, time_us: int) -> None:
        def save() -> None:
            if item in self.running:
                fact = {"trial_id": self.running[item], "allocation_id": item, "checkpoint_id": f"{item}-{self.now_us}"}
                rest: dict[str, Any] = {"batches": 1, "length": 1, "files": (), "size_bytes": 0, "location": ""}
                self.tell(CheckpointSaved.model_validate({**fact, **rest}))
                if item in self.running:  # It may have grown at this checkpoint.
                    self._save_later(item, self.now_us + self.costs.checkpoint_us)

        if self.costs.checkpoint_us and time_us < self.now_us + self.costs.startup_us + self._left_us(item):
            self.at(time_us, save)

    def _left_us(self, item: str) -> int:
        trial = self.trials[self.running[item]]
        left_us = trial.script.work_us - trial.done_us
        return -(-left_us * trial.slots // trial.running) if trial.slots else left_us

    def _told_to_leave(self, data: AllocationPreempted | AllocationResized) -> None:
        trial = self.trials[data.trial_id]
        if self.running.pop(data.allocation_id, None) is None:
            return  # It leaves already, and goes on with other slots than it was told at first.
        self._stop_training(trial)
        if isinstance(data, AllocationResized):
            self.outcome.resizes += 1
        else:
            self.outcome.preemptions += 1
        self.outcome.lost += trial.running * self.costs.save_us
        self.at(self.now_us + self.costs.save_us, lambda: self._exit(data.allocation_id, trial, "preempted"))

    def _stop_training(self, trial: SimulatedTrial, *, undone_us: int = 0) -> None:
        trained_us = max(0, self.now_us - trial.granted_us - self.costs.startup_us)
        kept_us = max(0, trained_us - undone_us)
        self.outcome.lost += trial.running * (min(self.costs.startup_us, self.now_us - trial.granted_us) + trained_us - kept_us)
        self.outcome.useful += trial.running * kept_us
        trial.done_us += kept_us * trial.running // trial.slots if trial.slots else kept_us

    def _leave(self, item: str, outcome: WorkersOutcome) -> None:
        trial_id = self.running.pop(item, None)
        if trial_id is None:
            return  # It was preempted or lost meanwhile.
        trial = self.trials[trial_id]
        if outcome == "finished":
            self._stop_training(trial)
            trial.ended_us = self.now_us
            self._ended += 1
            self._count(self._wanted, trial.user, -trial.most)
            self.tell(
                TrialStopped(experiment_id=trial.script.experiment_id, trial_id=trial_id, outcome="completed", reason=SIMULATED)
            )
        self._exit(item, trial, outcome)

    def _exit(self, item: str, trial: SimulatedTrial, outcome: WorkersOutcome) -> None:
        if trial.allocation_id != item:
            return
        trial.allocation_id = ""
        self._count(self._held, trial.user, -trial.running)
        self.tell(WorkersExited(allocation_id=item, trial_id=trial.script.trial_id, outcome=outcome, exit_code=None))
        experiment_id = trial.script.experiment_id
        if outcome == "finished":
            self.open_trials[experiment_id] -= 1
            if not self.open_trials[experiment_id]:
                self.tell(
                    ExperimentCompleted(
                        experiment_id=experiment_id, best_trial_id=None, best_metric=None, trials=1, reason=SIMULATED
                    )
                )

    # Failures.

    def _fail_later(self, agent_id: str) -> None:
        def fail() -> None:
            self.lose(agent_id, "simulated failure")
            self.at(self.now_us + self.costs.repair_us, back)

        def back() -> None:
            self.tell(self.agents[agent_id])
            self._fail_later(agent_id)

        self.at(self.now_us + round(self.random.expovariate(1 / self.costs.failures_us)), fail)

    def lose(self, agent_id: str, reason: str) -> None:
        agent = self.state.agents.get(agent_id)
        items = sorted({*(item for _, item in agent.used), *agent.auxiliary}) if agent else []
        self.tell(AgentLost(agent_id=agent_id, reason=reason))
        for item in items:
            allocation = self.state.allocations.get(item)
            if allocation is None:
                continue
            trial = self.trials[f"{allocation.experiment_id}-{allocation.trial_number}"]
            if self.running.pop(item, None) is not None:
                period_us = self.costs.checkpoint_us or self.now_us
                trained_us = max(0, self.now_us - trial.granted_us - self.costs.startup_us)
                self._stop_training(trial, undone_us=trained_us % period_us)
            self._exit(item, trial, "lost")


def utilisation_bound(cluster: SimulatedCluster) -> float:
    """The most that any schedule could use of what is offered until the last trial ends, were all known in advance and starting
    free. No schedule ends before the work that arrives from some time on could be done by all slots from then on, nor before
    any one trial could end."""
    outcome = cluster.outcome
    trials = sorted(cluster.trials.values(), key=lambda trial: -trial.script.arrives_us)
    if not trials or not outcome.capacity:
        return 0.0
    work, end_us = 0, 0.0
    for trial in trials:
        work += trial.slots * trial.script.work_us
        fastest_us = trial.script.work_us * trial.slots / trial.most if trial.slots else trial.script.work_us
        end_us = max(end_us, trial.script.arrives_us + work / outcome.capacity, trial.script.arrives_us + fastest_us)
    return min(1.0, work / (outcome.capacity * max(1.0, end_us - outcome.start_us)))
