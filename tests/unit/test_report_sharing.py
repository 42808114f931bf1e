"""Reports share calls and messages on their way from the worker: nothing is lost or reordered, and little is sent."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.reports import TRACKER_REPORT, MetricPoint, MetricsReport, ProgressReport, ValidationReport
from tenuto.schemas.subjects import Lane
from tenuto.workers.agent.database import open_database
from tenuto.workers.agent.fair_turns import fair_shares, interleaved
from tenuto.workers.agent.overflow import OVERFLOW_REPORTS
from tenuto.workers.agent.spool import FACT_LANES, NUMBERED_AHEAD_FIRST, NewReport, Spool
from tenuto.workers.connection.agent_client import AgentClient, Outgoing
from tenuto.workers.harness.reporter import CALL_BYTES_MAX, PENDING_REPORTS_MAX, POINTS_SHARED_MAX, Reporter

OWNER = {"trial_id": "1-1", "allocation_id": "1-1-1"}


class Agent:
    """Takes reports when it is let."""

    def __init__(self) -> None:
        self.reports: list[Outgoing] = []
        self.lets = threading.Event()
        self.called = threading.Event()

    def report(self, batch: Sequence[Outgoing]) -> int:
        self.called.set()
        self.lets.wait()
        self.reports.extend(batch)
        return batch[-1].sequence


def validation(batches: int) -> ValidationReport:
    return ValidationReport(**OWNER, batches=batches, length=batches, metrics={"loss": 1.0})


def metrics(batches: int) -> MetricsReport:
    return MetricsReport(**OWNER, points=(MetricPoint(batches=batches, time_us=0, metrics={"loss": 1.0}),))


def test_metrics_and_progress_that_wait_share_a_report_and_facts_do_not() -> None:
    agent, total = Agent(), PENDING_REPORTS_MAX - 10
    reporter = Reporter(cast(AgentClient, agent), 0)
    reporter.report("metrics", metrics(0))
    agent.called.wait()  # that one is on its way: it stays as it is
    for number in range(1, total):
        reporter.report("metrics", metrics(number))
        reporter.report("tracker", validation(number))
    for number in range(5):
        reporter.report("tracker", ProgressReport(**OWNER, batches=total + number, length=total + number))
    agent.lets.set()
    reporter.flush()
    reporter.close()
    assert [item.sequence for item in agent.reports] == list(range(1, len(agent.reports) + 1))
    sent = [MetricsReport.from_json(item.body) for item in agent.reports if item.lane == "metrics"]
    facts = [TRACKER_REPORT.validate_json(item.body) for item in agent.reports if item.lane == "tracker"]
    assert [point.batches for report in sent for point in report.points] == list(range(total))
    assert len(sent) == 2
    assert all(len(report.points) <= POINTS_SHARED_MAX for report in sent)
    assert [fact.batches for fact in facts[:-1]] == list(range(1, total))  # type: ignore[union-attr]
    assert facts[-1] == ProgressReport(**OWNER, batches=total + 4, length=total + 4)
    known = -1
    for item in agent.reports:  # a point never comes behind a fact that was reported after it
        if item.lane == "metrics":
            known = MetricsReport.from_json(item.body).points[-1].batches
        else:
            assert known >= min(TRACKER_REPORT.validate_json(item.body).batches, total - 1)  # type: ignore[union-attr]


def test_a_call_is_never_larger_than_the_agent_takes() -> None:
    agent, calls = Agent(), list[int]()
    take = agent.report

    def report(batch: Sequence[Outgoing]) -> int:
        calls.append(sum(len(item.body) for item in batch))
        return take(batch)

    agent.report = report  # type: ignore[method-assign]
    reporter = Reporter(cast(AgentClient, agent), 0)
    reporter.report("metrics", metrics(0))
    agent.called.wait()
    large = metrics(1).model_copy(update={"allocation_id": "1-1-1", "trial_id": "x" * (CALL_BYTES_MAX // 4)})
    for _ in range(10):
        reporter.report("metrics", large)
    reporter.report("metrics", metrics(2).model_copy(update={"trial_id": "x" * (2 * CALL_BYTES_MAX)}))
    agent.lets.set()
    reporter.flush()
    reporter.close()
    assert len(agent.reports) == 12
    assert len(calls) > 3
    assert max(calls) <= CALL_BYTES_MAX


@given(waiting=st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 50), max_size=8), room=st.integers(0, 200))
def test_room_is_divided_equally_and_used(waiting: dict[str, int], room: int) -> None:
    for last_served in ("", *waiting):
        shares = fair_shares(waiting, room, last_served)
        assert sum(shares.values()) == min(room, sum(waiting.values()))
        for name, share in shares.items():
            assert 0 < share <= waiting[name]
            assert all(share <= shares.get(other, 0) + 1 or shares.get(other, 0) == waiting[other] for other in waiting)


def test_who_was_served_last_waits_for_the_others() -> None:
    waiting = {"a": 9, "b": 9, "c": 9}
    assert fair_shares(waiting, 2, "a") == {"b": 1, "c": 1}
    assert fair_shares(waiting, 2, "c") == {"a": 1, "b": 1}
    assert interleaved([[1, 2, 3], [10], [20, 21]]) == [1, 10, 20, 2, 21, 3]


def taken(spool: Spool, lane: Lane, count: int) -> list[tuple[str, bytes]]:
    """Numbers that many reports, and commits what waits in the lane, but for its last report where there are several."""
    spool.number_some(lane, count)
    reports = spool.pending(lane, 0, 100_000)
    if not reports:
        return []
    assert [report.sequence for report in reports] == list(range(reports[0].sequence, spool.last(lane) + 1))
    if lane == "tracker":
        assert max(Counter(report.allocation_id for report in reports).values()) <= OVERFLOW_REPORTS
    committed = reports[: max(len(reports) - 1, 1)]
    spool.commit(lane, committed[-1].sequence, spool.id)
    spool.set_room(lane, committed[-1].sequence + NUMBERED_AHEAD_FIRST)
    return [(report.allocation_id, report.body) for report in committed]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.sampled_from(["1-1-1", "1-2-1", "1-3-1"]), st.integers(1, 80)),
            st.tuples(st.sampled_from(["take", "take beside"]), st.just(""), st.integers(1, 60)),
            st.tuples(st.sampled_from(["reopen", "begin again", "fail"]), st.just("1-1-1"), st.just(1)),
        ),
        max_size=25,
    )
)
def test_the_spool_numbers_each_report_once_and_keeps_the_order_of_each_trial(
    tmp_path_factory: object, steps: list[tuple[str, str, int]]
) -> None:
    path = cast(Path, tmp_path_factory.mktemp("spool")) / "agent.sqlite"  # type: ignore[attr-defined]
    connection = open_database(path)
    spool, names, numbers = Spool(connection, "spool-0"), itertools.count(1), itertools.count()
    made: dict[str, list[bytes]] = {}
    sent: list[tuple[str, bytes]] = []
    for what, allocation_id, count in steps:
        if what == "append":
            bodies = [b"%d" % next(numbers) for _ in range(count)]
            made.setdefault(allocation_id, []).extend(bodies)
            spool.append(*(NewReport("tracker", "test", allocation_id, body) for body in bodies))
        elif what == "fail":
            with_text = NewReport("tracker", "test", allocation_id, cast(bytes, object()))  # SQLite does not take it
            try:
                spool.append(NewReport("tracker", "test", allocation_id, b"undone"), with_text)
            except Exception:
                assert not connection.in_transaction
        elif what == "reopen":
            connection.close()
            connection = open_database(path)
            spool = Spool(connection, "never")
        elif what == "begin again":
            spool.begin_again(f"spool-{next(names)}")
        else:
            sent.extend(taken(spool, "overflow" if what == "take beside" else "tracker", count))
    while spool.backlog():
        before = len(sent)
        sent.extend(report for lane in FACT_LANES for report in taken(spool, lane, 100_000))
        assert len(sent) > before, "facts wait that no lane may number"
    for allocation_id, bodies in made.items():
        assert [body for owner, body in sent if owner == allocation_id] == bodies
    connection.close()
