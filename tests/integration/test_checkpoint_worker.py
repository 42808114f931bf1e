"""Real worker processes and their checkpoints: damage, S3, a store that goes away, missing credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenuto.kernel.storage import checkpoints
from tenuto.schemas.ids import location_of
from tenuto.schemas.reports import ValidationReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.checkpoint_reports import stored_files
from tests.support.s3_server import SECRET_KEY, STORE, S3Server

CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "counting"


def config(**changes: Any) -> dict[str, Any]:
    return {
        "name": "counting",
        "entrypoint": "model_def:CountingTrial",
        "searcher": {"name": "single", "metric": "total", "max_length": {"epochs": 5}},
        "min_checkpoint_period": {"batches": 4},
        **changes,
    }


def stop_at(agent: AgentStandIn, length: int) -> AgentStandIn:
    def react(report: Any) -> pb.Directive | None:
        at_target = isinstance(report, ValidationReport) and report.length >= length
        return pb.Directive(action=pb.Directive.STOP, target_length=length) if at_target else None

    agent.react = react
    return agent


def test_a_damaged_checkpoint_falls_back_to_the_one_before_it(tmp_path: Path) -> None:
    with WorkerBench(tmp_path, CONTEXT, config(), {}) as trial:
        first = stop_at(trial.agent(1), 1)
        assert trial.start(first).wait() == 0
        *_, before, damaged = first.checkpoints()
        assert (before.batches, damaged.batches) == (8, 10)
        file = stored_files(damaged)["sum.txt"]
        file.chmod(0o644)
        file.write_text("99 9")

        second = stop_at(trial.agent(2, damaged, earlier=[before]), 2)
        run = trial.start(second)
        assert run.wait() == 0, run.output()
        assert second.validations()[-1].metrics["total"] == float(sum(range(20))), "as if nothing had happened"
        assert "checkpoint 1-1-1-10 cannot be read: sum.txt has 4 bytes where" in run.output()
        assert "goes on from checkpoint 1-1-1-8 at batch 8 instead" in run.output()
        [report] = second.damaged()
        assert (report.checkpoint_id, report.resumed_from) == ("1-1-1-10", "1-1-1-8")
        assert report.reason.startswith("sum.txt has 4 bytes where")

        third = stop_at(trial.agent(2, damaged), 2)
        run = trial.start(third)
        assert run.wait() == 0, "with nothing before it, it begins again from its seed"
        assert third.validations()[-1].metrics["total"] == float(sum(range(20))), "as if nothing had happened"
        assert "begins again from its seed" in run.output()
        assert "trying the one before it" not in run.output()
        assert [item.resumed_from for item in third.damaged()] == [None]

        another = damaged.model_copy(update={"checkpoint_id": "7-1-1-10"})
        fourth = trial.agent(2, another)
        assert trial.start(fourth).wait() == 1, "what began from another trial's weights cannot begin without them"
        assert "would be another training. Restore it in the store" in fourth.error_file.read_text()

        trial.checkpoint_directory = tmp_path / "not-mounted"
        fifth = trial.agent(2, damaged)
        assert trial.start(fifth).wait() == 1
        assert "mounted on this node" in fifth.error_file.read_text()


def test_what_differs_from_the_record_is_not_loaded(tmp_path: Path) -> None:
    with WorkerBench(tmp_path, CONTEXT, config(), {}) as trial:
        first = stop_at(trial.agent(1), 1)
        assert trial.start(first).wait() == 0
        checkpoint = first.checkpoints()[-1]
        forged = checkpoint.model_copy(update={"files": checkpoint.files[:-1]})
        second = stop_at(trial.agent(2, forged), 2)
        run = trial.start(second)
        assert run.wait() == 0
        assert "its manifest is not what was recorded" in run.output()
        assert "begins again from its seed" in run.output()


def test_saved_to_s3_and_resumed_from_there(tmp_path: Path, s3_server: S3Server) -> None:
    with WorkerBench(tmp_path, CONTEXT, config(checkpoint_storage={"store": STORE}), {}) as trial:
        trial.stores = s3_server.stores("resume")
        first = stop_at(trial.agent(1), 1)
        run = trial.start(first)
        assert run.wait() == 0, run.output()
        checkpoint = first.checkpoints()[-1]
        assert not (tmp_path / "checkpoints").exists(), "nothing goes to the shared directory"
        second = stop_at(trial.agent(3, checkpoint), 3)
        run = trial.start(second)
        assert run.wait() == 0, run.output()
        assert "resumed from checkpoint 1-1-1-10 at batch 10" in run.output()
        assert second.validations()[-1].metrics["total"] == float(sum(range(30)))
        assert SECRET_KEY not in run.output()
        saved = second.checkpoints()[-1]
        store, checkpoint_id = trial.stores.open_location(location_of(STORE, "1-1", saved.checkpoint_id), STORE)
        assert store.url == f"s3://{s3_server.bucket}/resume/1/1-1"
        assert checkpoints.verify(store, checkpoints.read_manifest(store, checkpoint_id)) == []


def test_a_store_that_is_away_does_not_stop_the_training(tmp_path: Path) -> None:
    with (
        S3Server.away(tmp_path / "store") as server,
        WorkerBench(tmp_path, CONTEXT, config(checkpoint_storage={"store": STORE}, min_checkpoint_period=None), {}) as trial,
    ):
        trial.stores = server.stores()
        agent = stop_at(trial.agent(1), 1)
        run = trial.start(agent)
        assert run.wait() == 0, run.output()
        assert agent.checkpoints() == []
        assert len(agent.validations()) == 1
        assert "the checkpoint at batch 10 could not be saved under s3://checkpoints/1/1-1" in run.output()
        assert "training goes on without it" in run.output()


def test_a_store_that_is_not_declared_is_named(tmp_path: Path) -> None:
    with WorkerBench(tmp_path, CONTEXT, config(checkpoint_storage={"store": "elsewhere"}), {}) as trial:
        agent = trial.agent(1)
        run = trial.start(agent)
        assert run.wait() == 1
        assert "There is no store 'elsewhere' here" in agent.error_file.read_text()
