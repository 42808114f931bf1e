"""Records that a real worker process makes when a script starts, and its message about changed data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenuto.schemas.record import KnownData
from tenuto.schemas.reports import DataReport, EnvironmentReport, TrackerReport, ValidationReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support.agent_stand_in import WorkerBench

SCRIPT = """
import multiprocessing
import tenuto

def helper(path):
    return str(tenuto.data(path))  # in a process of the script's own: only the path

if __name__ == "__main__":
    with tenuto.init() as run:
        directory = tenuto.data(run.hyperparameters["data"], name="train")
        tenuto.data("inside.txt")
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map(helper, ["/nowhere"]) == ["/nowhere"]
        for operation in run.operations():
            run.report_validation(operation.steps, {"total": float((directory / "x").read_text())})
"""
CONFIG: dict[str, Any] = {
    "name": "recorded",
    "entrypoint": "train.py",
    "searcher": {"name": "single", "metric": "total", "max_length": {"batches": 5}},
    "environment": {"variables": {"MY_API_KEY": "sesame", "MY_SWITCH": "on"}},
}


def stop(report: TrackerReport) -> pb.Directive | None:
    return pb.Directive(action=pb.Directive.STOP, target_length=5) if isinstance(report, ValidationReport) else None


def test_a_script_is_on_record_and_told_of_changed_data(tmp_path: Path) -> None:
    context, data = tmp_path / "context", tmp_path / "data"
    context.mkdir()
    data.mkdir()
    (context / "train.py").write_text(SCRIPT)
    (context / "inside.txt").write_text("in the model directory")
    (data / "x").write_text("1")
    with WorkerBench(tmp_path, context, CONFIG, {"data": str(data)}) as trial:
        agent = trial.agent(5)
        agent.assignment = agent.assignment.model_copy(
            update={
                "known_data": (KnownData(name="train", fingerprint="another", recorded_by="1-1"),),
                "known_environment": "another",
            }
        )
        agent.react = stop
        run = trial.start(agent, MY_API_KEY="sesame", MY_SWITCH="on", XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert run.wait() == 0, run.output()
    environment, train, inside = agent.records
    assert isinstance(environment, EnvironmentReport)
    assert isinstance(train, DataReport)
    assert isinstance(inside, DataReport)
    recorded = environment.environment
    assert recorded.packages["tenuto"]
    assert (recorded.variables["MY_API_KEY"], recorded.variables["MY_SWITCH"]) == ("(hidden)", "on")
    assert (train.data.name, train.data.path, train.changed_from) == ("train", str(data), "another")
    assert (inside.data.name, inside.changed_from) == ("inside.txt", None)
    assert "the data 'train' are not what they were when trial 1-1 started with them" in run.output()
    assert "the trial goes on in another environment than before" in run.output()
    assert (tmp_path / "cache" / "tenuto" / "fingerprints.sqlite").exists()
