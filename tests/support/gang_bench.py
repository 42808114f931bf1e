"""Real ranks under real supervisors, with an agent's stand-in: allocation after allocation of one trial."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.reports import CheckpointReport
from tenuto.workers.launch.layout import GANG_VARIABLE, RENDEZVOUS_FILE, GangPart
from tests.support.agent_stand_in import TOKEN, WAIT_SECONDS_MAX, AgentStandIn, WorkerBench
from tests.support.waiting import until
from tests.support.warm_starts import WarmProcess, WarmStarts, warm_starts

NODES = ("first", "second", "third")
RANKED = Path(__file__).parent / "trials" / "ranked"


@dataclass(frozen=True)
class Network:
    """A node's address and network interface, and the warm processes in its network namespace."""

    address: str = "127.0.0.1"
    interface: str = "lo"
    starts: WarmStarts | None = None


@dataclass
class GangRun:
    """One supervisor with its ranks."""

    process: WarmProcess | subprocess.Popen[bytes]
    directory: Path
    log: Path
    ranks: int = 1

    def wait(self) -> int:
        """Waits for the exit code. Ranks that do not end print the stacks of their threads."""
        try:
            return self.process.wait(WAIT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            for process in self.supervisor().children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGABRT)
            self.process.wait(WAIT_SECONDS_MAX)
            raise AssertionError(f"it did not end: {self.output()}") from None

    @property
    def error(self) -> str:
        path = self.directory / "error.txt"
        return path.read_text() if path.exists() else ""

    def output(self) -> str:
        """All that was printed, for a failing test."""
        paths = [self.log, *sorted(self.directory.glob("rank-*/std*"))]
        return "\n".join(f"--- {path}\n{path.read_text()}" for path in paths if path.exists())

    def die(self) -> None:
        """Kills all of its processes, in no order: one may already have ended because another did."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def processes(self) -> list[psutil.Process]:
        """The session leader, the supervisor, its ranks, and the ranks' children."""
        try:
            leader = psutil.Process(self.process.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def supervisor(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]

    def rank(self, local_rank: int) -> psutil.Process:
        """In a gang over several nodes, the supervisor's first child keeps the links between nodes, so ranks come after it."""
        found: psutil.Process = self.supervisor().children()[-self.ranks :][local_rank]
        return found


class GangBench(WorkerBench):
    def __init__(self, directory: Path, *arguments: Any, modules: tuple[str, ...] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, *arguments, modules=modules)
        self.gangs: list[GangRun] = []
        self.networks: tuple[Network, ...] = ()
        """Networks of the nodes, by index. Empty: all nodes are on this machine's loopback interface."""
        self.cold = False
        """Supervisors and ranks are new interpreters."""

    def gang(
        self,
        ranks: int,
        target_length: int,
        checkpoint: CheckpointReport | None = None,
        nodes: int = 1,
        earlier: Sequence[CheckpointReport] = (),
        **environment: str,
    ) -> tuple[AgentStandIn, list[GangRun]]:
        """The trial's next allocation, started: `ranks` on each of so many nodes."""
        agent = self.agent(target_length, checkpoint, earlier=earlier)
        slots = tuple(AgentSlots(agent_id=NODES[node], slot_ids=tuple(range(ranks))) for node in range(nodes))
        agent.assignment = agent.assignment.model_copy(update={"slots": slots})
        runs = [self._start(agent, node, nodes, ranks, environment) for node in range(nodes)]
        if nodes > 1:
            threading.Thread(target=_carry_rendezvous, args=(runs,), daemon=True).start()
        return agent, runs

    def _start(self, agent: AgentStandIn, node: int, nodes: int, ranks: int, environment: dict[str, str]) -> GangRun:
        directory = self.directory / f"run-{agent.assignment.allocation_id}-{node}"
        directory.mkdir()
        network = self.networks[node] if self.networks else Network()
        part = GangPart(
            allocation_id=agent.assignment.allocation_id,
            secret="of this gang",
            agents=tuple((NODES[index], ranks) for index in range(nodes)),
            agent_index=node,
            directory=str(directory),
            address=network.address,
            interface=network.interface,
            command=(sys.executable, "-m", "tenuto.workers.harness"),
            progress_seconds_max=agent.assignment.config.distributed.progress_seconds_max,
            link_seconds_max=agent.assignment.config.distributed.link_seconds_max,
        )
        everything = {
            **self.variables(),
            "TENUTO_AGENT_ADDRESS": f"unix:{agent.socket}",
            "TENUTO_ALLOCATION_ID": agent.assignment.allocation_id,
            "TENUTO_TOKEN": TOKEN,
            "TENUTO_RANK": str(part.first_rank),
            "TENUTO_ERROR_FILE": str(directory / "error.txt"),
            "OMP_NUM_THREADS": "1",
            GANG_VARIABLE: part.to_json(),
            **environment,
        }
        log = directory / "log"
        if self.cold:
            with log.open("wb") as output:
                command = [sys.executable, "-m", "tenuto.workers.launch"]
                process = subprocess.Popen(command, env=everything, cwd=self.context_directory, stdout=output, stderr=output)
            self.gangs.append(GangRun(process, directory, log, ranks))
            return self.gangs[-1]
        run = GangRun(
            (network.starts or warm_starts(self._modules)).start(everything, self.context_directory, log), directory, log, ranks
        )
        self.gangs.append(run)
        return run

    def __exit__(self, *arguments: object) -> None:
        for run in self.gangs:
            run.die()
        super().__exit__(*arguments)


def kill_when_saved(agent: AgentStandIn, run: GangRun, local_rank: int, held: Path, batches: int) -> CheckpointReport:
    """The rank stays in a step until it is killed: when the checkpoint of these batches, which is stored beside the training, is
    reported. Returns that."""
    wait_held(held, [run])
    agent.wait_for(lambda: [report.batches for report in agent.checkpoints()][-1:] == [batches])
    run.rank(local_rank).kill()
    assert run.wait() == -9, run.output()
    assert agent.checkpoints()[-1].batches == batches
    return agent.checkpoints()[-1]


def preempt_when_held(agent: AgentStandIn, run: GangRun, held: Path, go: Path) -> None:
    """A rank waits in the middle of a step until `go`: rank 0 is told to leave in the meantime. Nothing shows from outside that
    it has understood; a later word would only make a test say less."""
    wait_held(held, [run])
    agent.wait_for(lambda: agent.watchers > 0)
    agent.direct("preempt")
    agent.wait_for(lambda: agent.delivered is agent.directive)
    go.touch()


def wait_held(held: Path, runs: list[GangRun]) -> None:
    """Returns when a rank of one of these is where it waits."""

    def gone() -> str:
        return "" if all(run.process.poll() is None for run in runs) else "\n".join(run.output() for run in runs)

    until(held.exists, gone=gone)


def _carry_rendezvous(runs: list[GangRun]) -> None:
    """Passes rendezvous reports from rank 0's node to the others, as agents and launcher do."""
    path = runs[0].directory / RENDEZVOUS_FILE
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for run in runs[1:]:
        partial = run.directory / "partial"
        partial.write_text(path.read_text())
        partial.rename(run.directory / RENDEZVOUS_FILE)


def ranked_bench(directory: Path, hyperparameters: dict[str, Any], **changes: Any) -> GangBench:
    """A bench for a trial that notes which rank trains which records. `changes`: fields of its configuration."""
    config = {
        "name": "ranked",
        "entrypoint": "model_def:RankedTrial",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 24}},
        "min_checkpoint_period": {"batches": 5},
        "log_period": {"batches": 4},
        **changes,
    }
    return GangBench(directory, RANKED, config, {"loader_workers": 0, **hyperparameters})
