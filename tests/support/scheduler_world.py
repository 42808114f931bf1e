"""A cluster around the scheduler, from a seed: users, search, launcher, tracker and agents that crash. Everybody reads the log
at a pace of their own, so facts cross each other in every order that a real cluster can show."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenuto.kernel.replay import fold
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentPauseRequested,
    ExperimentPriorityChanged,
    ExperimentResumeRequested,
    ExperimentSlotLimitChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.events.run import RestartPauseEnded
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted
from tenuto.schemas.events.trial import TrialFinished
from tests.support.scheduler_driver import WHY, Driver, exited, extended, failed, joined, paused, requested, stopped, submitted

FAILURES_MAX = 3
WITHOUT_SLOTS_EACH = 5
"""One of this many experiments has trials without slots."""


@dataclass
class TrialLife:
    experiment: int
    target: int
    done: int = 0
    failures: int = 0
    waits: bool = False
    """True while the search has paused the trial."""
    over: bool = False
    finished: bool = False
    allocation: str = ""
    """Allocation granted and not released, by the log up to the tracker's position; empty if there is none."""


class World:
    def __init__(self, seed: int, *, agents: int, slots: int, experiments: int, trials: int, gang_max: int) -> None:
        self.random = random.Random(seed)
        self.driver = Driver(checks=False)
        self.slots, self.gang_max, self.trials_each = slots, gang_max, trials
        self.agents = {f"agent-{number:02}": False for number in range(agents)}
        self.to_submit = list(range(1, experiments + 1))
        self.ended: set[int] = set()
        self.canceled: set[int] = set()
        self.paused: set[int] = set()
        self.trials: dict[str, TrialLife] = {}
        self.running: dict[str, str] = {}
        """Allocation -> what its workers were told: run, preempted, paused, finished."""
        self.parts: dict[str, set[str]] = {}
        self.verdicts: list[tuple[str, bool]] = []
        self.pauses: list[str] = []
        """Allocations whose trials wait before they start again."""
        self.seen = 0
        for agent in self.agents:
            self.start_agent(agent)

    def tell(self, data: EventData) -> None:
        self.driver.record(data)

    # The parts of the cluster, one small step each.

    def step(self, *, chaos: bool) -> None:
        calm: list[tuple[float, Callable[[], None]]] = [
            (4, lambda: self._scheduler()),
            (5, self.follow),
            (8, self.work),
            (2, self.search),
            (2, self.verdict),
            (2, self.end_pause),
            (0.3, self.submit),
        ]
        wild: list[tuple[float, Callable[[], None]]] = [
            (0.15, self.lose_agent),
            (0.3, self.return_agent),
            (0.3, self.user),
            (0.4, self.kill_worker),
            (0.1, self.restart_scheduler),
            (0.02, self.drain),
        ]
        choices = calm + wild if chaos else calm
        [action] = self.random.choices([action for _, action in choices], [weight for weight, _ in choices])
        action()

    def _scheduler(self) -> None:
        self.driver.decide_all(self.random.choice([1, 3, 20]))

    def restart_scheduler(self) -> None:
        """Restores the scheduler from its snapshot and from the log alone: both must equal its state."""
        core, before = self.driver.core, self.driver.state
        assert core.load(core.dump(before)) == before
        folded = fold(core, self.driver.log, inputs_upto=self.driver.read_position)
        assert core.dump(folded) == core.dump(before)
        core.check(folded)
        self.driver.state = folded

    def submit(self) -> None:
        if self.to_submit:
            number = self.to_submit.pop(0)
            size = self.random.randint(1, self.gang_max)
            limit = self.random.choice([None, None, size * 2])
            if number % WITHOUT_SLOTS_EACH == 0:
                size, limit = 0, None
            self.tell(submitted(number, slots=size, priority=self.random.choice([10, 42, 42, 42, 60]), max_slots=limit))
            for trial in range(1, self.trials_each + 1):
                self.trials[f"{number}-{trial}"] = TrialLife(number, target=self.random.randint(1, 6))
                self.tell(requested(number, trial)[0])

    def follow(self) -> None:
        """Launcher and tracker read the next events of the log."""
        for event in self.driver.log[self.seen :][: self.random.choice([1, 5, 50])]:
            self.seen = event.position
            data: Any = event.data
            if event.type == "AllocationGranted":
                self.trials[data.trial_id].allocation = data.allocation_id
                self.parts[data.allocation_id] = {part.agent_id for part in data.slots}
                if self.trials[data.trial_id].over:
                    self.exit(data.allocation_id, "finished")
                elif not all(self.agents[agent] for agent in self.parts[data.allocation_id]):
                    self.exit(data.allocation_id, "lost")
                else:
                    self.running[data.allocation_id] = "run"
            elif event.type == "AllocationPreempted" and self.running.get(data.allocation_id) == "run":
                self.running[data.allocation_id] = "preempted"
            elif event.type == "AllocationReleased":
                self.trials[data.trial_id].allocation = ""
                self.parts.pop(data.allocation_id)
            elif event.type in ("TrialPaused", "TrialStopped", "TrialExtended"):
                allocation = self.trials[data.trial_id].allocation
                if allocation in self.running and self.running[allocation] != "preempted":
                    self.running[allocation] = {"TrialPaused": "paused", "TrialStopped": "finished"}.get(event.type, "run")

    def exit(self, allocation: str, outcome: Any) -> None:
        self.running.pop(allocation, None)
        if pauses := outcome in ("failed", "lost") and self.random.random() < 0.5:
            self.pauses.append(allocation)
        self.tell(exited(allocation, outcome, pauses=pauses))
        if outcome == "failed":
            trial = self.trials[allocation.rsplit("-", 1)[0]]
            trial.failures += 1
            self.verdicts.append((allocation, trial.failures >= FAILURES_MAX))

    def work(self) -> None:
        """Workers of one allocation follow their last directive, or train a little."""
        if not self.running:
            return
        allocation = self.random.choice(sorted(self.running))
        told = self.running[allocation]
        trial = self.trials[allocation.rsplit("-", 1)[0]]
        if told != "run":
            self.exit(allocation, told)
        elif self.random.random() < 0.02:
            self.exit(allocation, "failed")
        else:
            trial.done = min(trial.done + 1, trial.target)

    def kill_worker(self) -> None:
        if self.running:
            self.exit(self.random.choice(sorted(self.running)), "lost")

    def search(self) -> None:
        for name in self.random.sample(sorted(self.trials), min(8, len(self.trials))):
            trial = self.trials[name]
            if trial.over:
                if not trial.finished and not trial.allocation:
                    trial.finished = True
                    self.tell(TrialFinished(trial_id=name, batches=trial.done, length=trial.done, checkpoint_id=None))
                    self.end_if_done(trial.experiment)
            elif trial.done >= trial.target or trial.waits:
                self.judge_trial(name, trial)

    def judge_trial(self, name: str, trial: TrialLife) -> None:
        choice = self.random.random()
        if choice < 0.3 and trial.target < 20:
            trial.target, trial.waits = trial.target + 2, False
            self.tell(extended(name))
        elif choice < 0.5 and not trial.waits:
            trial.waits = True
            self.tell(paused(name))
        elif choice > 0.7:
            self.stop_trial(name, trial)

    def stop_trial(self, name: str, trial: TrialLife) -> None:
        trial.over = True
        self.tell(stopped(name))

    def end_if_done(self, experiment: int) -> None:
        own = [trial for trial in self.trials.values() if trial.experiment == experiment]
        if all(trial.finished for trial in own):
            self.ended.add(experiment)
            canceled = ExperimentCanceled(experiment_id=experiment, trials=len(own))
            completed = ExperimentCompleted(
                experiment_id=experiment, best_trial_id=None, best_metric=None, trials=len(own), reason=WHY
            )
            self.tell(canceled if experiment in self.canceled else completed)

    def verdict(self) -> None:
        if self.verdicts:
            allocation, final = self.verdicts.pop(0)
            self.tell(failed(allocation, final=final))
            name = allocation.rsplit("-", 1)[0]
            if final and not self.trials[name].over:
                self.stop_trial(name, self.trials[name])

    def end_pause(self) -> None:
        if self.pauses:
            allocation = self.pauses.pop(self.random.randrange(len(self.pauses)))
            self.tell(RestartPauseEnded(allocation_id=allocation, trial_id=allocation.rsplit("-", 1)[0]))

    def start_agent(self, agent: str) -> None:
        self.agents[agent] = True
        self.tell(joined(agent, self.slots, auxiliary_max=1 + self.slots % 2))

    def lose_agent(self) -> None:
        agent = self.random.choice(sorted(self.agents))
        if self.agents[agent]:
            self.agents[agent] = False
            self.tell(AgentLost(agent_id=agent, reason="the lease ran out"))
            for allocation in sorted(self.running):
                if agent in self.parts[allocation]:
                    self.exit(allocation, "lost")

    def return_agent(self) -> None:
        agent = self.random.choice(sorted(self.agents))
        if not self.agents[agent]:
            self.start_agent(agent)

    def drain(self) -> None:
        agent = self.random.choice(sorted(self.agents))
        if self.agents[agent]:
            self.tell(SlotsClosed(agent_id=agent, drain=True))

    def user(self) -> None:
        live = sorted({trial.experiment for trial in self.trials.values()} - self.ended - self.canceled)
        if not live:
            return
        experiment = self.random.choice(live)
        choice = self.random.randrange(6)
        if choice == 0:
            self.paused.add(experiment)
            self.tell(ExperimentPauseRequested(experiment_id=experiment))
        elif choice in (1, 2):
            self.paused.discard(experiment)
            self.tell(ExperimentResumeRequested(experiment_id=experiment))
        elif choice == 3:
            self.tell(ExperimentPriorityChanged(experiment_id=experiment, priority=self.random.choice([10, 42, 60])))
        elif choice == 4:
            limit = self.random.choice([None, self.gang_max, 1])
            self.tell(ExperimentSlotLimitChanged(experiment_id=experiment, max_slots=limit))
        elif self.random.random() < 0.2:
            self.canceled.add(experiment)
            self.tell(ExperimentCancelRequested(experiment_id=experiment))
            for name, trial in sorted(self.trials.items()):
                if trial.experiment == experiment and not trial.over:
                    self.stop_trial(name, trial)

    # The whole story.

    def run(self, *, chaos_steps: int, calm_steps_max: int) -> None:
        """Chaos for a while, then peace: everything must come to its end. Raises AssertionError if something starves."""
        for _ in range(chaos_steps):
            self.step(chaos=True)
        for agent in sorted(self.agents):
            if self.agents[agent]:
                self.tell(AgentLost(agent_id=agent, reason="restarted"))
                for allocation in sorted(self.running):
                    if agent in self.parts[allocation]:
                        self.exit(allocation, "lost")
            self.start_agent(agent)
            self.tell(SlotsOpened(agent_id=agent))
        live = {trial.experiment for trial in self.trials.values()} - self.ended
        for experiment in sorted(live - self.canceled):
            self.tell(ExperimentResumeRequested(experiment_id=experiment))
            self.tell(ExperimentSlotLimitChanged(experiment_id=experiment, max_slots=None))
        for _ in range(calm_steps_max):
            if self.done:
                return
            self.step(chaos=False)
        waiting = sorted(name for name, trial in self.trials.items() if not trial.finished)
        raise AssertionError(f"after {calm_steps_max} steps {len(waiting)} trials are not finished: {waiting[:10]}")

    @property
    def done(self) -> bool:
        return (
            not self.to_submit
            and all(trial.finished for trial in self.trials.values())
            and not self.driver.behind
            and not self.running
            and self.seen == len(self.driver.log)
        )
