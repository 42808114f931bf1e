"""Trials of one experiment on one agent, one after the other, to see which share a process: real agent, bus and harness."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.assignments import Action, Assignment
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.reports import LogsReport
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.runtimes.process.kept import KeptWorkers
from tenuto.workers.agent.runtimes.process.processes import marked
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tests.support.control_plane import ControlPlane, agent_settings, make_assignment, make_config, make_context

TRIAL = """
import json, os, random, sys
import numpy, torch
from torch import nn
from torch.utils.data import Dataset
from tenuto import pytorch

CALLS = []

class Records(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((4,), float(index)) + random.random() + numpy.random.random()

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
        self.calls = 0

    def forward(self, values):
        self.calls += 1
        return super().forward(values)

class Adam(torch.optim.Adam):
    pass

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        CALLS.append(1)
        print("seen " + json.dumps({"pid": os.getpid(), "calls": len(CALLS), "type": str(torch.get_default_dtype()),
            "word": os.environ.get("WORD", ""), "trial": context.get_hparam("word"), "cwd": os.path.basename(os.getcwd())}))
        self.model = context.wrap_model(Net())
        self.optimizer = context.wrap_optimizer(Adam(self.model.parameters(), lr=0.01))
        globals().get("begin", lambda trial: None)(self)

    def build_training_data_loader(self):
        return pytorch.DataLoader(Records(), batch_size=3, shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Records(), batch_size=4)

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = (self.model(batch) - batch.mean()).square().mean() * (1 + random.random()) * (1 + torch.rand(()))
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.model(batch).square().mean()}
"""


def trial_that(*lines: str) -> str:
    """The trial, which does this at the end of its `__init__`."""
    return TRIAL + "\ndef begin(self):\n" + "\n".join(f"    {line}" for line in lines) + "\n"


@dataclass
class KeptBench:
    control: ControlPlane
    app: AgentApp
    shared: Path
    settings: Settings
    stack: AsyncExitStack
    numbers: int = 0
    contexts: dict[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> KeptWorkers:
        assert isinstance(self.app.runtime, ProcessRuntime)
        return self.app.runtime.kept

    async def restart_agent(self) -> None:
        """Another agent on the same directory, whose workers go on meanwhile."""
        await self.stack.aclose()
        self.app = await _started(self.settings, self.stack)

    def assignment(self, body: str = TRIAL, *, word: str = "", reuse: bool = True, **changes: Any) -> Assignment:
        """The next trial's."""
        self.numbers += 1
        if body not in self.contexts:
            self.contexts[body] = make_context(self.shared, body.encode())
        values = {"hyperparameters": {"word": word}, "config": config_of(reuse), **changes}
        return make_assignment(self.contexts[body], trial=self.numbers, **values)

    async def train(self, assignment: Assignment, then: Action = "stop") -> str:
        """Trains to the target and leaves. Returns the outcome of its exit."""
        await self.control.until(lambda: bool(self.control.heartbeats))
        await self.control.assign(assignment)
        ours = assignment.allocation_id
        await self.control.until(lambda: self.metrics(assignment) or ours in self.control.exits())
        if ours not in self.control.exits():
            await self.control.assign(assignment.model_copy(update={"action": then}))
        report = await self.control.exit_of(ours)
        await self.control.assign()
        return report.outcome

    async def run(self, body: str = TRIAL, then: Action = "stop", **changes: Any) -> dict[str, Any]:
        """Trains the next trial; what it has seen when it began."""
        assignment = self.assignment(body, **changes)
        outcome = await self.train(assignment, then)
        assert outcome == {"stop": "finished", "pause": "paused"}[then], self.control.exits()[assignment.allocation_id]
        return await self.seen(assignment)

    async def seen(self, assignment: Assignment) -> dict[str, Any]:
        found: list[str] = []

        def look() -> bool:
            found[:] = [line for line in self.lines(assignment) if line.startswith("seen ")]
            return bool(found)

        await self.control.until(look)
        seen: dict[str, Any] = json.loads(found[0].removeprefix("seen "))
        return seen

    def found(self, assignment: Assignment) -> dict[str, Any]:
        """State that a trial said it has found; empty before that."""
        said = [line for line in self.lines(assignment) if line.startswith("found ")]
        return dict(json.loads(said[0].removeprefix("found "))) if said else {}

    def lines(self, assignment: Assignment) -> list[str]:
        """Lines of a trial's log so far."""
        reports = [LogsReport.from_json(body) for _, body in self.control.reports["logs"]]
        return [line.text for one in reports if one.allocation_id == assignment.allocation_id for line in one.lines]

    def metrics(self, assignment: Assignment) -> dict[str, float]:
        """Metrics of the trial's validation; empty before it is reported."""
        for kind, body in self.control.reports["tracker"]:
            said = json.loads(body)
            if kind == "validation" and said["allocation_id"] == assignment.allocation_id:
                return dict(said["metrics"])
        return {}


def config_of(reuse: bool = True, **changes: Any) -> ExperimentConfig:
    environment = {"reuse_worker": True} if reuse else {}
    return make_config(environment={**environment, **changes.pop("environment", {})}, **changes)


@asynccontextmanager
async def kept_bench(nats_url: str, directory: Path, **settings: Any) -> AsyncIterator[KeptBench]:
    of_agent = agent_settings(nats_url, directory, **settings)
    control = ControlPlane(of_agent)
    await control.start()
    async with AsyncExitStack() as stack:
        bench = KeptBench(control, await _started(of_agent, stack), directory / "shared", of_agent, stack)
        try:
            yield bench
        finally:
            await bench.stack.aclose()
            await control.stop()
            assert not marked(directory / "agent"), "who waits for a run ends with the agent"


async def _started(settings: Settings, stack: AsyncExitStack) -> AgentApp:
    app = AgentApp(settings, SystemClock(), environment=dict(os.environ))
    await app.open()
    stack.push_async_callback(app.close)
    stack.push_async_callback(stop_task, asyncio.create_task(app.run()))
    return app
