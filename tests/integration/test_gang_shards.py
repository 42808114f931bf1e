"""Checkpoints of a script that hold the files of all ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tenuto.kernel.storage.checkpoints import read_manifest, verify
from tenuto.schemas.ids import location_of
from tenuto.schemas.reports import DamageReport
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench
from tests.support.reactions import stop_at
from tests.support.s3_server import STORE, S3Server

CONTEXT = Path(__file__).parents[1] / "support" / "scripts" / "sharded"
CONFIG = {
    "name": "sharded",
    "entrypoint": "train.py",
    "searcher": {"name": "single", "metric": "sum", "max_length": {"batches": 20}},
    "min_checkpoint_period": {"batches": 5},
    "checkpoint_storage": {"on_failure": "continue"},
}


def numbers(report: Any) -> list[int]:
    files = stored_files(report)
    return [json.loads(files[f"number-{rank}.json"].read_text()) for rank in range(2)]


def expected(steps: int) -> list[int]:
    found = [1, 2]
    for step in range(1, steps + 1):
        found = [(number * 31 + step) % 1_000_003 for number in found]
    return found


def test_one_checkpoint_holds_the_files_of_all_ranks_and_any_number_of_ranks_reads_it(tmp_path: Path) -> None:
    with GangBench(tmp_path, CONTEXT, CONFIG, {}) as bench:
        agent, [run] = bench.gang(2, 20, TEST_END="12")
        assert run.wait() == 1, run.output()
        assert [report.batches for report in agent.checkpoints()] == [5, 10], "once each, by rank 0"
        last = agent.checkpoints()[-1]
        assert numbers(last) == expected(10)
        assert {"number-0.json", "number-1.json", "table-0", "table-1", "same", "tenuto.json"} <= {
            file.path for file in last.files
        }
        blobs = [path for path in last_directory(last).glob("blobs/*") if path.stat().st_size == 100_000]
        assert len(blobs) == 2, "each rank names what it has stored before"
        assert not list(last_directory(last).glob(".*")), "nothing is left of the way there"
        alone = bench.agent(15, last)
        alone.react = stop_at(15)
        process = bench.start(alone)
        assert process.wait() == 0
        assert numbers(alone.checkpoints()[-1]) == expected(15)
        again, [run] = bench.gang(2, 20, alone.checkpoints()[-1])
        again.react = stop_at(20)
        assert run.wait() == 0, run.output()
        assert again.validations()[-1].metrics == {"sum": sum(expected(20))}
        assert run.output().count(f"reads {expected(20)}") == 2, "every rank reads all of it"


def last_directory(report: Any) -> Path:
    return next(iter(stored_files(report).values())).parents[1]


def test_a_rank_that_cannot_save_leaves_no_checkpoint_and_training_goes_on(tmp_path: Path) -> None:
    with GangBench(tmp_path, CONTEXT, CONFIG, {}) as bench:
        agent, [run] = bench.gang(2, 20, TEST_RAISE="1 10")
        agent.react = stop_at(20)
        assert run.wait() == 0, run.output()
        assert [report.batches for report in agent.checkpoints()] == [5, 15, 20]
        assert "rank 1 could not store the files of this checkpoint" in run.output()


def test_two_ranks_with_one_name_are_told(tmp_path: Path) -> None:
    with GangBench(tmp_path, CONTEXT, CONFIG, {}) as bench:
        agent, [run] = bench.gang(2, 20, TEST_CLASH="10")
        assert run.wait() == 1, run.output()
        assert [report.batches for report in agent.checkpoints()] == [5]
        assert "saved a file of the same name with other contents: same (ranks 0 and 1)" in run.error


def test_an_object_store_gets_each_ranks_files_from_the_rank(tmp_path: Path, s3_server: S3Server) -> None:
    config = {**CONFIG, "checkpoint_storage": {"store": STORE}}
    with GangBench(tmp_path, CONTEXT, config, {}) as bench:
        bench.stores = s3_server.stores("shards")
        agent, [run] = bench.gang(2, 20, TEST_END="12")
        assert run.wait() == 1, run.output()
        last = agent.checkpoints()[-1]
        assert last.batches == 10
        store, checkpoint_id = bench.stores.open_location(location_of(STORE, "1-1", last.checkpoint_id), STORE)
        manifest = read_manifest(store, checkpoint_id)
        both = [manifest, read_manifest(store, agent.checkpoints()[0].checkpoint_id)]
        named = {file.blob for item in both for file in item.files}
        assert {entry.key for entry in store.entries("blobs")} == named, "nothing is left of the way there"
        assert verify(store, manifest) == []
        again, [run] = bench.gang(2, 20, last)
        again.react = stop_at(20)
        assert run.wait() == 0, run.output()
        assert again.validations()[-1].metrics == {"sum": sum(expected(20))}


def test_each_rank_fetches_its_own_files_and_damage_that_one_finds_counts_for_all(tmp_path: Path) -> None:
    with GangBench(tmp_path, CONTEXT, CONFIG, {}) as bench:
        agent, [run] = bench.gang(2, 20, TEST_END="12")
        assert run.wait() == 1, run.output()
        earlier, last = agent.checkpoints()
        first = {"same", "tenuto.json", "tenuto_metadata.json", "number-0.json", "table-0"}
        both = first | {"number-1.json", "table-1"}
        again, [run] = bench.gang(2, 20, last)
        again.react = stop_at(20)
        assert run.wait() == 0, run.output()
        assert f"rank 0 fetched {sorted(first)}" in run.output(), "not what rank 1 alone needs"
        assert f"rank 1 fetched {sorted(both)}" in run.output(), "its own files, and those of rank 0"
        assert again.validations()[-1].metrics == {"sum": sum(expected(20))}, "the others' files come when they are asked for"
        _, [run] = bench.gang(3, 11, last, TEST_END="11")
        assert run.wait() == 1, run.output()
        assert run.output().count(f"fetched {sorted(both)}") == 3, "another number of ranks: all files"
        number = stored_files(last)["number-1.json"]
        number.chmod(0o600)
        number.write_text("0")
        other, [run] = bench.gang(2, 20, last, earlier=[earlier])
        other.react = stop_at(20)
        assert run.wait() == 0, run.output()
        assert other.validations()[-1].metrics == {"sum": sum(expected(20))}
        [damage] = [report for report in other.reports if isinstance(report, DamageReport)]
        assert (damage.checkpoint_id, damage.resumed_from) == (last.checkpoint_id, earlier.checkpoint_id)
        assert damage.reason.startswith("rank 1 found: number-1.json")
