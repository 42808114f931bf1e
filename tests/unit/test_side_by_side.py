"""A pure function on several values: the same results here and side by side."""

from __future__ import annotations

import os
import signal

import pytest

from tenuto.cli import side_by_side

HERE = os.getpid()


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "_processors", lambda: 2)


def test_results_come_in_the_order_of_the_values_from_other_processes() -> None:
    offset = 10  # a closure is no obstacle: nothing is sent but values and results
    assert side_by_side.each(lambda value: value + offset, range(5)) == [10, 11, 12, 13, 14]
    assert HERE not in side_by_side.each(lambda _: os.getpid(), range(5))


def test_what_is_not_worth_it_runs_here() -> None:
    assert side_by_side.each(lambda _: os.getpid(), range(3), worth_it=False) == [HERE] * 3


def test_where_no_processes_can_be_made_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise FileNotFoundError("no semaphores")

    monkeypatch.setattr(side_by_side, "ProcessPoolExecutor", refuse)
    assert side_by_side.each(lambda _: os.getpid(), range(3)) == [HERE] * 3


def test_an_error_of_the_system_in_the_work_itself_is_raised() -> None:
    def fail(_: int) -> None:
        raise FileNotFoundError("of the work")

    with pytest.raises(FileNotFoundError, match="of the work"):
        side_by_side.each(fail, [1, 2])


def test_an_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        side_by_side.each(lambda value: 1 // value, [1, 0])


def test_where_a_process_is_killed_the_work_is_done_here() -> None:
    def dies_elsewhere(value: int) -> int:
        if os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    assert side_by_side.each(dies_elsewhere, [1, 2, 3]) == [1, 2, 3]
