"""The five cores together under a seeded scheduler of steps: no clock, no processes, every interleaving possible.

Services read the log at their own pace and crash; agents deliver reports late, twice, or vanish; workers fail and are killed.
What is real: the cores, the folding order, derived ids, guards, recovery by fold. What is simulated: training and transport.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tenuto.kernel.core import AnyCore, Refused
from tenuto.kernel.decision import step
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas import reports
from tenuto.schemas.assignments import Assignment, Assignments, Heartbeat
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.ids import name_id
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.experiments.commands import CancelExperiment, PauseExperiment, ResumeExperiment, SubmitExperiment
from tenuto.services.launcher import commands as launcher
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.effects.assigning import assignments_of
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.tracker import commands as tracker
from tenuto.services.tracker.core import TrackerCore

VALIDATION_PERIOD = 2
ENDS = ("ExperimentCompleted", "ExperimentFailed", "ExperimentCanceled")
LATER_US = 10**15
"""A time after the end of every pause before a restart."""


@dataclass(frozen=True)
class Faults:
    """Probability of each fault, per step of its kind."""

    crash_service: float = 0.01
    kill_worker: float = 0.01
    fail_worker: float = 0.005
    lose_agent: float = 0.002
    repeat_report: float = 0.1
    nan_metric: float = 0.02


@dataclass
class Service:
    core: AnyCore
    state: Any
    position: int = 0


@dataclass
class Worker:
    assignment: Assignment
    batches: int
    started: bool = False
    reached: bool = False
    """True once it has reported at its present target length, and waits for the search's decision."""
    outcome: str | None = None
    error: str | None = None


@dataclass
class Agent:
    agent_id: str
    slots: int
    alive: bool = True
    incarnation: int = 0
    position: int = -1
    workers: dict[str, Worker] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    tracker_lane: deque[tuple[UUID, Any]] = field(default_factory=deque)
    launcher_lane: deque[tuple[UUID, Any]] = field(default_factory=deque)
    sent: list[tuple[str, UUID, Any]] = field(default_factory=list)
    """Reports delivered before, which may be delivered again."""


class House:
    def __init__(self, seed: int, agents: int = 2, slots: int = 2, faults: Faults | None = None) -> None:
        self.rng = random.Random(seed)
        self.faults = faults or Faults()
        self.log: list[Event] = []
        self.versions: Counter[str] = Counter()
        self.services = {
            core.name: Service(core, core.initial())
            for core in (GatewayCore(), SearcherCore(), SchedulerCore(), LauncherCore(), TrackerCore())
        }
        self.agents = [Agent(f"agent-{number}", slots) for number in range(agents)]
        self._commands = 0
        self._places: dict[UUID, int] = {}
        """Of events in the log, by their ids."""
        self._ended = 0

    # The log and the services.

    def _append(self, events: tuple[Event, ...]) -> None:
        for event in events:
            before = self._places.get(event.id)
            assert before is None or before < len(self.log) - 200, f"{event.type} {event.id} is recorded twice"
            self._places[event.id] = len(self.log)
            self._ended += event.type in ENDS
            self.versions[event.stream] += 1
            self.log.append(event.recorded(len(self.log) + 1, self.versions[event.stream]))

    def advance(self, service: Service, inputs_max: int = 10_000) -> None:
        """Fold and decide on the next inputs; commit all of it."""
        for event in self.log[service.position : service.position + inputs_max]:
            core = service.core
            if event.type in core.consumes and event.type not in core.emits:
                state = core.evolve(service.state, event)
                service.state, decided = step(core, state, event, seen_position=event.position, time_us=len(self.log))
                self._append(decided)
            service.position = event.position
            core.check(service.state)

    def command(self, name: str, command: Any) -> tuple[Event, ...]:
        service = self.services[name]
        guards = service.core.guards(service.state, command)
        if any(self.versions[stream] != version for stream, version in guards.items()):
            self.advance(service)
        service.state, decided = step(service.core, service.state, command, seen_position=service.position, time_us=len(self.log))
        assert not any(event.id in self._places for event in decided if event.type != "ReportRefused")
        self._append(tuple(event for event in decided if event.id not in self._places))
        service.core.check(service.state)
        return decided

    def crash(self, service: Service) -> None:
        """Replaces the service's state with one folded from the log, as after a crash."""
        events = self.log[:]
        recovered = fold(service.core, events, inputs_upto=service.position)
        assert service.core.dump(recovered) == service.core.dump(service.state), service.core.name
        service.state = recovered

    def new_id(self) -> UUID:
        self._commands += 1
        return name_id("house", str(self._commands))

    def ask(self, kind: type[Any], **fields: Any) -> None:
        with contextlib.suppress(Refused):
            self.command("gateway", kind(id=self.new_id(), time_us=0, user="ada", **fields))

    def submit(self, config: ExperimentConfig, seed: int) -> None:
        self.ask(SubmitExperiment, config=config, seed=seed, context_hash="00", context_size_bytes=1)

    # Agents and workers.

    def heartbeat(self, agent: Agent) -> None:
        beat = Heartbeat(
            agent_id=agent.agent_id,
            spool_id=str(agent.incarnation),
            pool="default",
            host=agent.agent_id,
            version="1",
            slots=tuple(Slot(slot_id=number, kind="cpu", device="cpu") for number in range(agent.slots)),
            allocations=tuple(sorted(agent.workers)),
        )
        fresh = not agent.launcher_lane
        self.command("launcher", launcher.RecordHeartbeat(self.new_id(), 0, beat, fresh))
        service = self.services["launcher"]
        self.assign(agent, assignments_of(service.state, agent.agent_id, service.position))

    def assign(self, agent: Agent, assigned: Assignments) -> None:
        if assigned.position < agent.position:
            return
        agent.position = assigned.position
        wanted = {item.allocation_id: item for item in assigned.assignments}
        for allocation_id, worker in agent.workers.items():
            item = wanted.get(allocation_id)
            if worker.outcome is not None:
                continue
            if item is None or item.action == "kill":
                self.leave(agent, worker, "lost")
            else:
                if item.target_length > worker.assignment.target_length:
                    worker.reached = False
                worker.assignment = item
        busy = {s for w in agent.workers.values() if w.outcome is None for s in self._slots(agent, w.assignment)}
        for allocation_id, item in wanted.items():
            if allocation_id in agent.workers or allocation_id in agent.done or busy & self._slots(agent, item):
                continue
            worker = Worker(item, item.checkpoint.batches if item.checkpoint else 0)
            agent.workers[allocation_id] = worker
            if item.action == "run":
                busy |= self._slots(agent, item)
                self.tell_launcher(agent, worker, reports.WorkersStartingReport)
            else:
                left = {"preempt": "preempted", "stop": "finished", "pause": "paused"}.get(item.action, "lost")
                self.leave(agent, worker, left)

    def _slots(self, agent: Agent, item: Assignment) -> set[int]:
        return {slot for part in item.slots if part.agent_id == agent.agent_id for slot in part.slot_ids}

    def tell_launcher(self, agent: Agent, worker: Worker, kind: type[Any], **fields: Any) -> None:
        item = worker.assignment
        report = kind(trial_id=item.trial_id, allocation_id=item.allocation_id, agent_id=agent.agent_id, **fields)
        agent.launcher_lane.append((self.new_id(), report))

    def leave(self, agent: Agent, worker: Worker, outcome: str, error: str | None = None) -> None:
        worker.outcome, worker.error = outcome, error

    def train(self, agent: Agent, worker: Worker) -> None:
        item = worker.assignment
        rng = self.rng
        if not worker.started:
            worker.started = True
            self.tell_launcher(agent, worker, reports.WorkersStartedReport)
        if item.action != "run":
            self.save(agent, worker)
            self.leave(agent, worker, {"preempt": "preempted", "stop": "finished", "pause": "paused"}[item.action])
        elif rng.random() < self.faults.kill_worker:
            self.leave(agent, worker, "lost", "killed by signal 9")
        elif rng.random() < self.faults.fail_worker:
            self.leave(agent, worker, "failed", "model_def.py:3: ValueError")
        elif not worker.reached:
            if worker.batches < item.target_length:
                worker.batches += 1
            if worker.batches >= item.target_length:
                worker.reached = True
                self.save(agent, worker)
            if worker.reached or worker.batches % VALIDATION_PERIOD == 0:
                self.validate(agent, worker)

    def save(self, agent: Agent, worker: Worker) -> None:
        item = worker.assignment
        checkpoint_id = str(self.new_id())
        self._report(agent, reports.CheckpointReport, worker, checkpoint_id=checkpoint_id, files=(), size_bytes=0,
                     location=f"file:///checkpoints/{item.trial_id}/{checkpoint_id}")  # fmt: skip

    def validate(self, agent: Agent, worker: Worker) -> None:
        value = random.Random(f"{worker.assignment.trial_id}/{worker.batches}").random()
        metrics = {"loss": float("nan") if self.rng.random() < self.faults.nan_metric else value}
        self._report(agent, reports.ValidationReport, worker, metrics=metrics)

    def _report(self, agent: Agent, kind: type[Any], worker: Worker, **fields: Any) -> None:
        item = worker.assignment
        ids = {"trial_id": item.trial_id, "allocation_id": item.allocation_id}
        report = kind(**ids, batches=worker.batches, length=worker.batches, **fields)
        agent.tracker_lane.append((self.new_id(), report))

    def deliver(self, agent: Agent) -> None:
        if agent.sent and self.rng.random() < self.faults.repeat_report:
            self._hand_over(*self.rng.choice(agent.sent[-20:]))
        for allocation_id, worker in list(agent.workers.items()):
            waits = any(report.allocation_id == allocation_id for _, report in agent.tracker_lane)
            if worker.outcome is not None and not waits:  # an exit is reported last
                self.tell_launcher(
                    agent, worker, reports.WorkersExitedReport, outcome=worker.outcome, exit_code=None, error=worker.error
                )
                agent.done.add(allocation_id)
                del agent.workers[allocation_id]
        lanes = [name for name in ("tracker", "launcher") if getattr(agent, f"{name}_lane")]
        if lanes:
            name = self.rng.choice(lanes)
            command_id, report = getattr(agent, f"{name}_lane").popleft()
            agent.sent.append((name, command_id, report))
            self._hand_over(name, command_id, report)

    def _hand_over(self, name: str, command_id: UUID, report: Any) -> None:
        kind: type[Any] = tracker.RecordTrialReport if name == "tracker" else launcher.RecordRunReport
        self.command(name, kind(command_id, 0, report))

    def lose(self, agent: Agent) -> None:
        """Removes the agent with its workers and undelivered reports; it may come back empty."""
        agent.alive = False
        agent.workers.clear()
        agent.done.clear()
        agent.tracker_lane.clear()
        agent.launcher_lane.clear()
        agent.sent.clear()
        agent.incarnation += 1
        self.command("launcher", launcher.ExpireLease(self.new_id(), 0, agent.agent_id, "no heartbeat"))

    # The run.

    def turn(self) -> None:
        rng, faults = self.rng, self.faults
        if self.services["launcher"].state.pauses and rng.random() < 0.05:
            self.command("launcher", launcher.EndRestartPauses(self.new_id(), LATER_US))
        kind = rng.random()
        if kind < 0.5:
            service = rng.choice(list(self.services.values()))
            if rng.random() < faults.crash_service:
                self.crash(service)
            self.advance(service, rng.randint(1, 20))
            return
        agent = rng.choice(self.agents)
        if not agent.alive:
            if rng.random() < 0.05:
                agent.alive, agent.position = True, -1
            return
        if rng.random() < faults.lose_agent:
            self.lose(agent)
        elif kind < 0.6:
            self.heartbeat(agent)
        elif kind < 0.8:
            running = [worker for worker in agent.workers.values() if worker.outcome is None]
            if running:
                self.train(agent, rng.choice(running))
        else:
            self.deliver(agent)

    def disturb(self, experiments: int) -> None:
        """One random command of a user: pause, resume or cancel of an experiment."""
        experiment = self.rng.randint(1, experiments)
        kind = self.rng.random()
        if kind < 0.45:
            self.ask(PauseExperiment, experiment_id=experiment)
        elif kind < 0.9:
            self.ask(ResumeExperiment, experiment_id=experiment)
        else:
            self.ask(CancelExperiment, experiment_id=experiment, kill=self.rng.random() < 0.5)

    def ended(self) -> int:
        return self._ended

    def settle(self) -> None:
        for _ in range(100):
            head = len(self.log)
            for service in self.services.values():
                self.advance(service)
            if len(self.log) == head:
                return
        raise AssertionError("the services never come to rest")

    def check_replay(self) -> None:
        for service in self.services.values():
            core = service.core
            assert core.dump(fold(core, self.log)) == core.dump(service.state), f"{core.name}: replay gives another state"
            assert core.dump(core.load(core.dump(service.state))) == core.dump(service.state)
            verdict = verify_decisions(core, self.log, decided_upto=service.position)
            assert verdict.ok, f"{core.name}: {verdict.divergences[0]}"
