"""The way in which a checkpoint is saved: beside training, while it waits, or not at all, by memory, store and configuration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tenuto.schemas.config.storage import CheckpointStorage
from tenuto.workers.checkpoints.host_memory import has_room
from tenuto.workers.harness.background_saves import BackgroundSaves
from tenuto.workers.harness.trainer import Trainer
from tests.support.waiting import SECONDS_MAX
from tests.unit.test_checkpoint_writer import Bench, Gate, at


class Copying(Trainer):
    """A trainer whose state has a size."""

    epoch_batches, has_snapshots, batches, needed = None, True, 7, 100

    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None: ...
    def take_metrics(self) -> dict[str, float]: ...  # type: ignore[empty-body]
    def validate(self) -> dict[str, float]: ...  # type: ignore[empty-body]
    def save(self, directory: Path) -> None: ...
    def load(self, directory: Path) -> None: ...
    def close(self) -> None: ...
    def snapshot_bytes(self) -> int:
        return self.needed


def test_where_memory_is_short_training_waits_and_the_log_says_why_once(tmp_path: Path) -> None:
    bench, trainer, room = Bench(tmp_path), Copying(), [True]
    saves = BackgroundSaves(CheckpointStorage(), bench.said.append, lambda needed: room[0])
    assert saves.way(trainer, bench.writer, optional=True) == "copy"
    room[0] = False
    assert [saves.way(trainer, bench.writer, optional=optional) for optional in (True, False)] == ["wait", "wait"]
    assert len(bench.said) == 1
    assert "training waits while checkpoints are stored: there is no memory for a copy" in bench.said[0]
    trainer.needed = 0
    assert saves.way(trainer, bench.writer, optional=True) == "copy", "the memory of the copy before is there"


def test_a_second_copy_that_has_no_room_waits_for_the_memory_of_the_first(tmp_path: Path) -> None:
    bench, trainer, gate = Bench(tmp_path), Copying(), Gate("10")
    saves = BackgroundSaves(CheckpointStorage(), bench.said.append, lambda needed: bench.writer.under_way == 0)
    bench.writer.save(at(10), gate)
    assert gate.begun.wait(SECONDS_MAX)
    threading.Timer(0.05, gate.opened.set).start()
    assert saves.way(trainer, bench.writer, optional=True) == "copy"
    assert bench.happened == ["saved 10"]
    assert bench.said == []


def test_a_checkpoint_that_nothing_hangs_on_may_be_left_out(tmp_path: Path) -> None:
    bench, trainer, gates = Bench(tmp_path), Copying(), [Gate("10"), Gate("20")]
    saves = BackgroundSaves(CheckpointStorage(when_busy="skip"), bench.said.append, lambda needed: True)
    for number, gate in enumerate(gates, 1):
        assert saves.way(trainer, bench.writer, optional=True) == "copy"
        bench.writer.save(at(10 * number), gate)
    assert [saves.way(trainer, bench.writer, optional=optional) for optional in (True, True, False)] == ["skip", "skip", "copy"]
    assert ["the checkpoint at batch 7 is left out" in said for said in bench.said] == [True]
    for gate in gates:
        gate.opened.set()
    bench.writer.wait()
    assert saves.way(trainer, bench.writer, optional=True) == "copy"
    saves.tell_skipped()
    saves.tell_skipped()
    assert bench.said[1:] == ["2 checkpoints were left out, because the store was still taking those before them"]


def test_training_waits_where_the_configuration_says_so(tmp_path: Path) -> None:
    bench, trainer = Bench(tmp_path), Copying()
    assert BackgroundSaves(CheckpointStorage(async_save=False), bench.said.append).way(trainer, bench.writer, True) == "wait"
    trainer.has_snapshots = False
    assert BackgroundSaves(CheckpointStorage(), bench.said.append).way(trainer, bench.writer, True) == "wait"
    assert bench.said == []


def test_memory_is_what_the_machine_and_each_control_group_leave(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    gib = 1 << 30
    assert has_room(100 * gib, tmp_path), "nothing is known"
    write("proc/meminfo", f"MemTotal: 9 kB\nMemAvailable: {8 * gib // 1024} kB\n")
    assert has_room(7 * gib, tmp_path)
    assert not has_room(8 * gib, tmp_path)
    write("proc/meminfo", f"MemTotal: 9 kB\nMemAvailable: {200 << 10} kB\n")
    assert has_room(40 << 20, tmp_path), "a small copy leaves several times its size"
    assert not has_room(41 << 20, tmp_path)
    write("proc/meminfo", f"MemTotal: 9 kB\nMemAvailable: {8 * gib // 1024} kB\n")
    write("proc/self/cgroup", "0::/a/b\n")
    for group, limit, used, files in (("a", 4 * gib, 3 * gib, gib), ("a/b", "max", 0, 0)):
        write(f"sys/fs/cgroup/{group}/memory.max", f"{limit}\n")
        write(f"sys/fs/cgroup/{group}/memory.current", f"{used}\n")
        write(f"sys/fs/cgroup/{group}/memory.stat", f"anon 5\ninactive_file {files}\n")
    assert has_room(gib, tmp_path)
    assert not has_room(2 * gib, tmp_path), "the group above has a limit"
    write("proc/self/cgroup", "4:cpu,memory:/c\n")
    write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", f"{3 * gib}\n")
    write("sys/fs/cgroup/memory/c/memory.usage_in_bytes", f"{gib}\n")
    assert has_room(gib, tmp_path)
    assert not has_room(2 * gib, tmp_path)
