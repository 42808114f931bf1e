"""Training metrics of scripts that use the Core API, in real worker processes, with a real gRPC server in the agent's place."""

from __future__ import annotations

from pathlib import Path

from tests.support.agent_stand_in import WorkerBench

SCRIPT = """
import threading
import tenuto

with tenuto.init() as run:
    for step in range(1, 31):
        run.report_training(step, {"loss": 1 / step})
        if step in (10, 20):
            with run.checkpoint.save(step) as directory:
                (directory / "state.txt").write_text(str(step))
            run.checkpoint.wait()
            run.report_training(step, {"accuracy": step / 30})
    threading.Event().wait()
"""


def test_a_killed_trial_loses_no_metrics_of_before_its_checkpoint(tmp_path: Path) -> None:
    """The trial that resumes from it does not make them again. All this takes less than the second for which metrics gather."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "train.py").write_text(SCRIPT)
    config = {
        "name": "metrics",
        "entrypoint": "train.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 30}},
    }
    with WorkerBench(tmp_path, context, config, {}) as bench:
        agent = bench.agent(30)
        run = bench.start(agent)
        agent.wait_for(lambda: len(agent.checkpoints()) == 2)
        expected = [(step, "loss") for step in range(1, 11)] + [(10, "accuracy")] + [(step, "loss") for step in range(11, 21)]
        came = [(point.batches, name) for report in agent.metrics for point in report.points for name in point.metrics]
        assert came[: len(expected)] == expected
        agent.wait_for(lambda: agent.metrics[-1].points[-1].metrics == {"accuracy": 20 / 30})
        run.kill()
