"""The writer beside the training thread: what runs at the same time, what waits for what, and what a failing store does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.store import StoreError
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.reports import CheckpointReport
from tenuto.workers.checkpoints import writer as writer_module
from tenuto.workers.checkpoints.location import Place
from tenuto.workers.checkpoints.writer import LEAVING_TRIES_MAX, TRIES_MAX, CheckpointWriter, Fill, Position
from tenuto.workers.errors import WillRepeat
from tests.support.waiting import SECONDS_MAX


class Store(DirectoryStore):
    """Fails as often as the test says."""

    failures = 0

    def put_bytes(self, key: str, data: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the store is away")
        super().put_bytes(key, data)


class Bench:
    def __init__(self, directory: Path, on_failure: str = "continue") -> None:
        config = ExperimentConfig.model_validate(
            {
                "name": "n",
                "entrypoint": "m:T",
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
                "checkpoint_storage": {"on_failure": on_failure},
            }
        )
        assignment = Assignment(
            allocation_id="1-1-1", trial_id="1-1", trial_number=1, experiment_id=1, config=config, context_hash="ab",
            hyperparameters={}, trial_seed=1, experiment_seed=1, slots=(AgentSlots(agent_id="a", slot_ids=(0,)),),
            checkpoint=None, target_length=100,
        )  # fmt: skip
        self.store = Store(directory)
        place = Place(assignment, directory, environment={})
        place.store = self.store
        self.happened: list[str] = []
        self.said: list[str] = []
        self.pauses: list[float] = []
        self.writer = CheckpointWriter(assignment, place, self.report, self.said.append, sleep=self.pauses.append)

    def report(self, report: CheckpointReport) -> None:
        manifest = checkpoints.read_manifest(self.store, report.checkpoint_id)
        assert checkpoints.verify(self.store, manifest) == [], "what is reported is stored"
        checkpoints.check_record(manifest, report.files)
        self.happened.append(f"saved {report.batches}")
        self.breaks = report.breaks

    def then(self, name: str) -> Callable[[], None]:
        return lambda: self.happened.append(name)

    def left_behind(self) -> list[str]:
        return [path.name for path in self.store.root.glob(".partial-*")]


def at(batches: int) -> Position:
    return Position(f"1-1-1-{batches}", batches, batches)


def content(text: str) -> Callable[[], Fill]:
    return lambda: lambda directory: (directory / "state").write_text(text) and None


class Gate:
    """A checkpoint that is written only when the test says so."""

    def __init__(self, text: str) -> None:
        self.text, self.begun, self.opened = text, threading.Event(), threading.Event()

    def __call__(self) -> Fill:
        return self.fill

    def fill(self, directory: Path) -> None:
        self.begun.set()
        assert self.opened.wait(SECONDS_MAX)
        (directory / "state").write_text(self.text)


def test_training_goes_on_while_one_is_stored_and_a_second_one_waits_its_turn(tmp_path: Path) -> None:
    bench, gate = Bench(tmp_path), Gate("10")
    bench.writer.save(at(10), gate, bench.then("validated 10"))
    assert gate.begun.wait(SECONDS_MAX)
    second = Gate("20")
    bench.writer.save(at(20), lambda: bench.happened.append("copied 20") or second.fill, bench.then("validated 20"))  # type: ignore[func-returns-value]
    assert bench.writer.under_way == 2
    assert bench.writer.full
    assert bench.happened == ["copied 20"], "the training thread was not held up"
    assert not second.begun.is_set(), "one is written at a time"
    threading.Timer(0.05, lambda: (bench.happened.append("released"), gate.opened.set())).start()
    bench.writer.save(at(30), lambda: bench.happened.append("copied 30") or content("30")())  # type: ignore[func-returns-value]
    assert bench.happened == ["copied 20", "released", "saved 10", "validated 10", "copied 30"], "at most two copies at a time"
    second.opened.set()
    bench.writer.wait()
    assert bench.happened[5:] == ["saved 20", "validated 20", "saved 30"]
    assert bench.writer.take_stored() == ["1-1-1-10", "1-1-1-20", "1-1-1-30"]
    assert bench.writer.take_stored() == []
    assert bench.left_behind() == []


def test_what_ends_the_training_leaves_no_later_checkpoint(tmp_path: Path) -> None:
    bench, begun, opened = Bench(tmp_path), threading.Event(), threading.Event()

    def wrong(directory: Path) -> None:
        begun.set()
        assert opened.wait(SECONDS_MAX)
        raise TypeError("cannot pickle a lambda")

    bench.writer.save(at(10), lambda: wrong)
    assert begun.wait(SECONDS_MAX)
    bench.writer.save(at(20), content("20"))
    opened.set()
    with pytest.raises(TypeError, match="cannot pickle"):
        bench.writer.wait()
    assert bench.happened == []
    assert bench.left_behind() == []


@pytest.mark.parametrize(
    ("validated", "left_at", "stored"), [(False, 30, [10, 30]), (True, 30, [10, 20, 30]), (False, 20, [10, 20])]
)
def test_who_leaves_waits_for_no_checkpoint_that_nothing_hangs_on(
    tmp_path: Path, validated: bool, left_at: int, stored: list[int]
) -> None:
    bench, gate = Bench(tmp_path), Gate("10")
    bench.writer.save(at(10), gate)
    assert gate.begun.wait(SECONDS_MAX)
    bench.writer.save(at(20), content("20"), (lambda: None) if validated else None)
    bench.writer.leave_at(left_at)
    gate.opened.set()
    if left_at == 30:
        assert bench.writer.save_now(at(30), content("30"), leaving=True)
    bench.writer.wait()
    assert bench.happened == [f"saved {batches}" for batches in stored]
    gives_way = ["the checkpoint at batch 20 gives way to that with which the trial leaves"]
    assert bench.said == ([] if 20 in stored else gives_way)


def test_a_report_says_what_broke_exactness(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def fill(text: str) -> Callable[[], Fill]:
        return lambda: lambda directory: (directory / "exactness.json").write_text(text) and None

    assert bench.writer.save_now(at(10), fill(json.dumps({"breaks": ["an order\n\x1b came out another", "x" * 9_000]})))
    assert bench.breaks == ("an order came out another", "x" * 500)
    assert bench.writer.save_now(at(20), fill("a script's own"))
    assert bench.breaks == ()


def test_an_unchanged_file_is_stored_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for batches in (10, 20, 30):
        assert bench.writer.save_now(at(batches), content("same"))
    assert len(list(bench.store.entries("blobs"))) == 1
    assert len(checkpoints.list_manifests(bench.store)) == 3


@pytest.mark.parametrize("background", [True, False])
def test_continue_gives_up_after_some_tries_and_says_why(tmp_path: Path, background: bool) -> None:
    bench = Bench(tmp_path)
    bench.store.failures = TRIES_MAX
    if background:
        bench.writer.save(at(10), content("a"), bench.then("validated"))
        bench.writer.wait()
        assert bench.happened == ["validated"], "the search hears of the validation all the same"
    else:
        assert not bench.writer.save_now(at(10), content("a"))
    assert len(bench.said) == TRIES_MAX
    assert "the checkpoint at batch 10 could not be saved under" in bench.said[0]
    assert "(the store is away); next try in 1 s" in bench.said[0]
    assert "training goes on without it" in bench.said[-1]
    assert bench.writer.take_stored() == []
    assert bench.left_behind() == []
    assert bench.writer.save_now(at(20), content("b"))
    assert bench.happened[-1] == "saved 20"


def test_retry_does_not_give_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "retry")
    bench.store.failures = 5 * TRIES_MAX
    bench.writer.save(at(10), content("a"))
    bench.writer.wait()
    assert bench.happened == ["saved 10"]
    assert len(bench.pauses) == 5 * TRIES_MAX
    assert max(bench.pauses) <= 10


def full_disk() -> Fill:
    def fill(directory: Path) -> None:
        raise OSError(28, "No space left on device")

    return fill


def test_after_a_checkpoint_for_which_training_waited_the_next_one_is_written_beside_it(tmp_path: Path) -> None:
    bench, threads = Bench(tmp_path, "retry"), list[str]()

    def seen() -> Fill:
        return lambda directory: threads.append(threading.current_thread().name)

    bench.writer.save(at(10), full_disk)
    bench.writer.wait()
    for batches in (20, 30):
        bench.writer.save(at(batches), seen)
    bench.writer.wait()
    assert threads == ["MainThread", "tenuto-checkpoint"]
    assert bench.happened == ["saved 20", "saved 30"]


def test_a_directory_that_cannot_be_made_uses_up_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, failures, make = Bench(tmp_path), [1] * (TRIES_MAX - 1), Place.staging

    def staging(place: Place, name: str) -> Path:
        if failures:
            failures.pop()
            raise OSError(30, "Read-only file system")
        return make(place, name)

    monkeypatch.setattr(Place, "staging", staging)
    bench.writer.save(at(10), content("a"))
    bench.writer.wait()
    assert bench.happened == ["saved 10"]


def test_who_leaves_tries_longer_but_not_for_ever(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.store.failures = LEAVING_TRIES_MAX - 1
    assert bench.writer.save_now(at(10), content("a"), leaving=True)
    bench.store.failures = LEAVING_TRIES_MAX
    assert not bench.writer.save_now(at(20), content("b"), leaving=True)
    assert bench.happened == ["saved 10"]


def test_a_full_disk_while_files_are_written(tmp_path: Path) -> None:
    tries: list[int] = []

    def full() -> Fill:
        tries.append(1)

        def fill(directory: Path) -> None:
            (directory / "half").write_text("half")
            raise OSError(28, "No space left on device")

        return fill

    bench = Bench(tmp_path)
    bench.writer.save(at(10), full)
    bench.writer.wait()
    assert len(tries) == 1, "the copy is gone once it was tried"
    assert "No space left on device" in bench.said[0]
    assert "given up" in bench.said[-1]
    assert not bench.writer.save_now(at(20), full)
    assert len(tries) == 1 + TRIES_MAX, "the training thread can write its state again"
    assert bench.left_behind() == []
    assert bench.happened == []


def test_more_files_than_a_report_can_name_end_the_trial_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent would not take the report, so the checkpoint would never be recorded, and the trial would not know."""
    monkeypatch.setattr(writer_module, "REPORT_BYTES_MAX", 100_000)

    def fill(directory: Path) -> None:
        for number in range(1_001):
            (directory / f"{number:05}").touch()

    bench = Bench(tmp_path)
    bench.writer.save(at(1), lambda: fill)
    with pytest.raises(WillRepeat, match="the checkpoint at batch 1 has 1,001 files, more than a report of 0 MiB can name"):
        bench.writer.wait()
    assert bench.happened == []
    assert checkpoints.list_manifests(bench.store) == []
    bench.writer.save_now(at(2), content("few"))
    assert bench.happened == ["saved 2"]


def test_an_error_of_the_users_code_reaches_the_training_thread(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    def wrong(directory: Path) -> None:
        raise TypeError("cannot pickle a lambda")

    bench.writer.save(at(10), lambda: wrong)
    with pytest.raises(TypeError, match="cannot pickle"):
        bench.writer.wait()
    with pytest.raises(TypeError, match="cannot pickle"):
        bench.writer.save_now(at(20), lambda: wrong)
    assert bench.left_behind() == []
