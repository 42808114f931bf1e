"""Trials of scripts that use the Core API, with a stand-in for their agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.agent_stand_in import AgentStandIn, WorkerBench

SCRIPTS = Path(__file__).parent / "scripts" / "summing"


def config(**changes: Any) -> dict[str, Any]:
    """Configuration of an experiment that runs the script of SCRIPTS."""
    return {
        "name": "summing",
        "entrypoint": "python train.py --flag 'two words'",
        "searcher": {"name": "single", "metric": "total", "max_length": {"epochs": 5}},
        **changes,
    }


def script(directory: Path, text: str, **changes: Any) -> WorkerBench:
    """A trial of this script."""
    context = directory / "context"
    context.mkdir()
    (context / "train.py").write_text(text)
    return WorkerBench(directory, context, config(entrypoint="train.py", **changes), {})


def fail(trial: WorkerBench, agent: AgentStandIn, code: int = 1, **environment: str) -> str:
    """Error message of a worker that must end with this exit code."""
    run = trial.start(agent, **environment)
    assert run.wait() == code, run.output()
    return agent.error_file.read_text()
