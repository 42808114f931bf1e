"""Decisions for all ranks of a gang, and messages about them: pure parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.workers.connection.directives import Directive
from tenuto.workers.harness.frameworks import lost_others
from tenuto.workers.launch.coordinator import TO_ALL, Coordinator
from tenuto.workers.launch.gang import GangBox
from tenuto.workers.launch.gang_errors import first_failure
from tenuto.workers.launch.hung_ranks import HUNG_LOOKS, Ages, Watch
from tenuto.workers.launch.layout import GangPart
from tenuto.workers.launch.progress import COMPUTING, OUTSIDE, STARTING, WAITING, ProgressFile, ProgressWriter, RankProgress
from tenuto.workers.pytorch.distributed.fsdp import to_whole
from tenuto.workers.pytorch.distributed.shards import Shard

PART = GangPart("1-1-1", (("one", 2), ("two", 1)), 0, "/nowhere", "127.0.0.1", progress_seconds_max=100.0)


def test_ranks_follow_the_order_of_the_agents() -> None:
    other = GangPart.from_json(GangPart("1-1-1", (("one", 2), ("two", 1)), 1, "/nowhere", "127.0.0.1").to_json())
    assert (list(PART.ranks), list(other.ranks), PART.world_size) == ([0, 1], [2], 3)
    assert [PART.agent_of(rank) for rank in range(3)] == ["one", "one", "two"]
    assert (PART.leads, other.leads) == (True, False)


class TestAgreement:
    def test_all_act_at_the_latest_boundary_and_the_next_word_waits(self) -> None:
        coordinator = Coordinator(3)
        assert coordinator.receive(0, {"op": "propose", "action": "preempt"}) == [(TO_ALL, {"op": "ask", "n": 1})]
        assert coordinator.receive(0, {"op": "propose", "action": "stop"}) == []
        assert coordinator.receive(0, {"op": "hold", "n": 1, "at": 5}) == []
        assert coordinator.receive(2, {"op": "hold", "n": 1, "at": 7}) == []
        decided, ask = coordinator.receive(1, {"op": "hold", "n": 1, "at": 6})
        assert decided == (TO_ALL, {"op": "decided", "n": 1, "at": 7, "action": "preempt"})
        assert ask == (TO_ALL, {"op": "ask", "n": 2})

    def test_who_has_ended_is_not_waited_for(self) -> None:
        coordinator = Coordinator(3)
        assert coordinator.receive(1, {"op": "done"}) == []
        coordinator.receive(0, {"op": "propose", "action": "stop"})
        assert coordinator.receive(0, {"op": "hold", "n": 1, "at": 5}) == []
        # It ends while the others wait for its answer.
        assert coordinator.receive(2, {"op": "done"}) == [(TO_ALL, {"op": "decided", "n": 1, "at": 5, "action": "stop"})]
        assert coordinator.receive(0, {"op": "propose", "action": "kill"}) == [(TO_ALL, {"op": "ask", "n": 2})]
        [(_, decided)] = coordinator.receive(0, {"op": "hold", "n": 2, "at": 6})
        assert decided["action"] == "kill"

    def test_values_are_given_to_who_asked_before_and_after(self) -> None:
        coordinator = Coordinator(2)
        assert coordinator.receive(1, {"op": "get", "key": "address", "id": 4}) == []
        answer = [(1, {"op": "value", "id": 4, "value": "here"})]
        assert coordinator.receive(0, {"op": "put", "key": "address", "value": "here"}) == answer
        assert coordinator.receive(1, {"op": "get", "key": "address", "id": 4}) == answer

    @settings(deadline=None, max_examples=50)
    @given(
        st.lists(st.integers(0, 30), min_size=2, max_size=4),
        st.lists(st.integers(0, 3), min_size=60, max_size=200),
    )
    def test_ranks_that_run_freely_leave_after_the_same_batch(self, starts: list[int], order: list[int]) -> None:
        """Ranks pass boundaries in any order, and words arrive in between."""
        coordinator, size = Coordinator(len(starts)), len(starts)
        boxes, outbox = [], []  # type: ignore[var-annotated]

        class Line:
            def __init__(self, rank: int) -> None:
                self.rank, self.leads = rank, rank == 0

            def send(self, message: dict[str, Any]) -> None:
                outbox.append((self.rank, message))

        first = Directive("run", 100)
        boxes = [GangBox(first, Line(rank)) for rank in range(size)]  # type: ignore[arg-type]
        for box, passed in zip(boxes, starts, strict=True):
            box._passed = passed
        left: dict[int, int] = {}
        boxes[0].put(Directive("preempt", 100))

        def deliver_one() -> None:
            rank, message = outbox.pop(0)
            for to, answer in coordinator.receive(rank, message):
                for index, box in enumerate(boxes):
                    if to in (TO_ALL, index):
                        box.receive(answer)

        for choice in [*order, *([0] * 20)]:
            if choice == 0 and outbox:
                deliver_one()
                continue
            rank = choice % size
            held = boxes[rank]._hold
            if rank in left or (held is not None and boxes[rank]._passed + 1 >= held):
                continue  # it would wait
            if boxes[rank].differs(first):
                left[rank] = boxes[rank]._passed
        while outbox:
            deliver_one()
        for rank, box in enumerate(boxes):
            while rank not in left:
                if box.differs(first):
                    left[rank] = box._passed
        assert len(set(left.values())) == 1


class TestWatch:
    def watch(self, *ranks: tuple[int, int, float, float, float]) -> Watch:
        watch = Watch(PART)
        for _ in range(HUNG_LOOKS - 1):
            watch.note({str(rank): values for rank, values in enumerate(ranks)})
            assert watch.hung() is None, "on a single look"
        watch.note({str(rank): values for rank, values in enumerate(ranks)})
        return watch

    def test_one_odd_look_ends_nobody(self) -> None:
        """Such as a time since the machine started, or news of one rank that never come again."""
        well, odd = (34, COMPUTING, 0.1, 0.1, 0.1), (34, COMPUTING, 3532.0, 0.1, 0.1)
        watch = Watch(PART)
        for _ in range(5 * HUNG_LOOKS):
            for look in (odd, odd, well):
                watch.note({0: well, 1: look, 2: well})
                assert watch.hung() is None
        watch.note({0: well, 1: odd, 2: well})
        for _ in range(5 * HUNG_LOOKS):
            watch.note({0: well, 2: well})
            assert watch.hung() is None, "rank 1 was not heard of again"

    def test_what_the_observer_missed_itself_is_not_counted(self) -> None:
        ages, item = Ages(2.0, 100.0), RankProgress(34, COMPUTING, 99.9, 0.1, 0.1)
        assert ages.look({0: item}, 100.5)[0][2] == pytest.approx(0.6)
        assert ages.look({0: item}, 160.5)[0][2] == pytest.approx(2.6), "it was stopped for a minute, and the rank perhaps, too"
        assert ages.look({0: item}, 161.0)[0][2] == pytest.approx(3.1)
        later = RankProgress(35, COMPUTING, 161.2, 0.1, 0.1)
        assert ages.look({0: later}, 221.2)[0][2] == pytest.approx(1.8), "before it was seen for the first time"
        assert ages.look({0: RankProgress(36, COMPUTING, 221.5, 0.1, 0.1)}, 221.7)[0][2] == pytest.approx(0.2)

    def test_the_deadline_is_learnt_and_bounded(self) -> None:
        step = (50, COMPUTING, 0.0, 0.1, 0.1)
        assert self.watch(step, step, (2, COMPUTING, 0.0, 0.1, 0.1)).deadline_seconds() == 100.0
        assert self.watch(step, step, step).deadline_seconds() == 10.0
        assert self.watch(step, step, (50, COMPUTING, 0.0, 0.1, 2.0)).deadline_seconds() == 40.0
        assert self.watch(step, step, (50, COMPUTING, 0.0, 0.1, 60.0)).deadline_seconds() == 100.0

    def test_who_waits_is_not_to_blame(self) -> None:
        waits, computes = (50, WAITING, 20.0, 0.1, 0.1), (50, COMPUTING, 20.0, 0.1, 0.1)
        found = self.watch(waits, waits, computes).hung()
        assert found is not None
        assert found[0] == 2
        assert found[1].startswith("rank 2 of 3 on agent two hangs: computing for 20 s after 50 steps, and the deadline is 10 s")
        everybody = self.watch(waits, waits, waits).hung()
        assert everybody is not None

    def test_who_is_between_steps_has_the_configured_time(self) -> None:
        """It may wait for a store that is slow."""
        saves = (50, OUTSIDE, 90.0, 0.1, 0.1)
        assert self.watch((50, WAITING, 90.0, 0.1, 0.1), saves, (50, WAITING, 90.0, 0.1, 0.1)).hung() is None
        late = self.watch((50, WAITING, 101.0, 0.1, 0.1), saves, (50, WAITING, 101.0, 0.1, 0.1)).hung()
        assert late is not None
        assert late[0] == 1

    def test_nothing_hangs_between_steps_or_while_starting(self) -> None:
        outside, starting = (50, OUTSIDE, 90.0, 0.1, 0.1), (0, STARTING, 90.0, 0.0, 0.0)
        assert self.watch(outside, outside, outside).hung() is None
        assert self.watch(starting, starting, starting).hung() is None

    def test_a_straggler_is_told_once(self) -> None:
        usual, slow = (50, COMPUTING, 0.0, 0.10, 0.3), (50, WAITING, 0.0, 0.21, 0.3)
        watch = self.watch(usual, slow, usual)
        told = [found for _ in range(40) for found in watch.stragglers()]
        assert [(found.rank, found.agent_id, found.own_seconds, found.usual_seconds) for found in told] == [(1, "one", 0.21, 0.1)]
        assert [found.sentence for found in told] == [
            "rank 1 of 3 on agent one is a straggler: 2.1 times as slow as the others (210 ms against 100 ms a step)"
        ]
        assert [found for _ in range(40) for found in self.watch(usual, usual, usual).stragglers()] == []


def test_progress_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress", 2, create=True)
    assert file.read(0).since > 0, "a rank that has not written yet is starting since now"
    writer = ProgressWriter(ProgressFile(tmp_path / "progress", 2), 1)
    writer.begin()
    with writer.waiting():
        assert file.read(1).phase == WAITING
    assert file.read(1).phase == COMPUTING
    writer.end()
    found = file.read(1)
    assert (found.steps, found.phase, file.read(0).steps) == (1, OUTSIDE, 0)
    assert found.longest_seconds >= found.own_seconds > 0


@pytest.mark.parametrize(("waits_are_seen", "own"), [(True, 1 + 4 + 16 + 64), (False, 1 + 4)])
def test_own_time_is_that_of_the_step_and_its_data_without_the_waits(tmp_path: Path, waits_are_seen: bool, own: float) -> None:
    file, seconds = ProgressFile(tmp_path / "progress", 1, create=True), 0.0
    writer = ProgressWriter(file, 0, clock=lambda: seconds)
    writer.waits_are_seen = waits_are_seen
    for _ in range(3):
        writer.read()
        seconds += 1
        writer.begin()
        seconds += 4
        with writer.waiting():
            seconds += 8
        seconds += 16
        with writer.waiting():
            seconds += 32
        seconds += 64
        writer.end()
        with writer.waiting():
            seconds += 1000
        assert file.read(0).phase == OUTSIDE
    assert file.read(0).own_seconds == pytest.approx(own)
    assert file.read(0).longest_seconds == 124


def test_the_sentence_names_the_rank_and_how_it_ended(tmp_path: Path) -> None:
    part = GangPart("1-1-1", (("one", 2),), 0, str(tmp_path), "127.0.0.1")
    (tmp_path / "rank-1").mkdir()
    killed = first_failure(part, 1, 137, killed=True)
    assert killed == "rank 1 of 2 on agent one died by signal 9 (SIGKILL; often the kernel, for lack of memory)"
    (tmp_path / "rank-1" / "stderr").write_text("loading\nno such file\n")
    for code in (3, 80, 137):  # any number may be the user's
        said = first_failure(part, 1, code, killed=False)
        assert said.startswith(f"rank 1 of 2 on agent one exited with code {code}, and told nothing of its end.")
        assert said.endswith("\nloading\nno such file")
    (tmp_path / "rank-1" / "error.txt").write_text("model_def.py:3: ValueError: no\n\nTraceback\n")
    assert (
        first_failure(part, 1, 1, killed=False)
        == "model_def.py:3: ValueError: no (rank 1 of 2 on agent one failed first)\n\nTraceback"
    )


def test_errors_of_the_communication_are_followers() -> None:
    gloo = RuntimeError("[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:28017")
    assert lost_others(gloo)
    wrapped = ValueError("bad")
    wrapped.__cause__ = gloo
    assert lost_others(wrapped)
    assert lost_others(type("HorovodInternalError", (Exception,), {})())
    assert not lost_others(ValueError("Connection closed by peer"))
    assert not lost_others(RuntimeError("size mismatch"))


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 9))
def test_shares_cover_each_record_once_and_differ_by_one(total: int, size: int) -> None:
    bounds = [Shard(rank, size).bounds(total) for rank in range(size)]
    assert Counter(index for low, high in bounds for index in range(low, high)) == Counter(range(total))
    sizes = [high - low for low, high in bounds]
    assert max(sizes) - min(sizes) <= 1


def test_a_made_batch_is_cut_wherever_it_has_the_records() -> None:
    batch = {
        "x": torch.arange(10).reshape(5, 2),
        "names": list("abcde"),
        "scale": torch.tensor(3.0),
        "pair": (torch.arange(5), 7),
    }
    cut = Shard(1, 2).cut(batch, 5)
    assert (cut.records, cut.total) == (3, 5)
    assert cut.batch["x"].tolist() == [[4, 5], [6, 7], [8, 9]]
    assert cut.batch["names"] == list("cde")
    assert cut.batch["pair"][0].tolist() == [2, 3, 4]
    assert (cut.batch["pair"][1], float(cut.batch["scale"])) == (7, 3.0)
    with pytest.raises(Exception, match="cannot be divided among 2 slots"):
        Shard(0, 2).cut({"scale": torch.tensor(3.0)}, 5)


def test_parts_of_a_divided_tensor_make_the_whole() -> None:
    whole = torch.arange(10.0).reshape(5, 2)
    parts = [{"a": {"tenuto_part": piece, "shape": [5, 2]}, "b": [1, None]} for piece in torch.chunk(whole, 3)]
    made = to_whole(parts)
    assert torch.equal(made["a"], whole)
    assert made["b"] == [1, None]


def test_what_a_script_waits_is_not_its_own_time_and_what_it_does_now_and_then_is_no_step(tmp_path: Path) -> None:
    file, seconds = ProgressFile(tmp_path / "progress", 1, create=True), 0.0
    writer = ProgressWriter(ProgressFile(tmp_path / "progress", 1), 0, lambda: seconds)
    writer.tick()
    for step in range(1, 51):
        seconds += 0.1
        with writer.waiting(), writer.waiting():
            assert file.read(0).phase == WAITING
            seconds += 0.4
        if step % 5 == 0:  # a checkpoint
            writer.leave_out()
            seconds += 9.0
        if step % 20 == 0:  # a validation that nobody sees
            seconds += 30.0
        if step == 30:
            writer.idle()
            seconds += 100.0
        writer.tick()
        if step == 10:
            assert file.read(0).own_seconds == 0.0, "the first steps warm up"
    assert file.read(0).own_seconds == pytest.approx(0.1)
    for _ in range(40):
        seconds += 0.5
        writer.add_own(-0.2)
        writer.tick()
    assert file.read(0).own_seconds == pytest.approx(0.3)
    assert file.read(0).phase == COMPUTING
