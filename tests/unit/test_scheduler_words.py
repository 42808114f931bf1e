"""What the scheduler says: decisions and reasons for waiting, as sentences that are true and in grammar."""

from __future__ import annotations

import re

import pytest

from tenuto.schemas.queue import QueueRow
from tenuto.services.scheduler.explain import explain
from tests.support.scheduler_driver import Driver, exited, fair, joined, requested, stopped, submitted

WRONG_NUMBER = re.compile(
    r"(?<![-\d])(?<!of )1 (slots|trials|agents|more agents|are)\b|(?<![-\d])(0|[2-9]|[1-9]\d+) (slot|agent)\b|1 slot are"
)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def texts(driver: Driver) -> list[str]:
    said = [getattr(event.data, "reason", None) for event in driver.log]
    rows = [row for pool in sorted(driver.state.pools) for row in explain(driver.state, pool, driver.now_us)]
    return [reason.text for reason in said if reason is not None] + [row.text for row in rows]


def queue(driver: Driver, pool: str = "default") -> dict[int, QueueRow]:
    return {row.experiment_id: row for row in explain(driver.state, pool, driver.now_us)}


@pytest.mark.parametrize("policy", ["priority", "fair_share"])
@pytest.mark.parametrize("size", [1, 2])
def test_one_is_not_many(driver: Driver, policy: str, size: int) -> None:
    said: list[str] = []
    if policy == "fair_share":
        driver.feed(fair())
    driver.feed(*(joined(f"node-{n}", size) for n in range(4)))
    driver.feed(submitted(1, slots=size * 4, priority=50, max_slots=size * 4), *requested(1, 1, 2))
    driver.feed(submitted(2, slots=size, priority=10, user="olga"), *requested(2, 1, 2))
    said += texts(driver)
    driver.feed(exited("1-1-1", "preempted"))
    driver.feed(submitted(3, slots=size, priority=60, locality="agent", max_slots=size), *requested(3, 1, 2))
    driver.feed(submitted(4, slots=size * 3, priority=50), *requested(4, 1))
    driver.feed(submitted(5, slots=size, priority=1, locality="agent"), *requested(5, 1, 2))
    said += texts(driver)
    driver.feed(submitted(6, slots=99, priority=1), *requested(6, 1), stopped("2-1"))
    said += texts(driver)
    driver.feed(*(exited(item) for item in sorted(driver.state.allocations)))
    said += texts(driver)
    assert any("is free" in text or "are free" in text for text in said)
    assert [text for text in said if WRONG_NUMBER.search(text)] == []


def test_an_elastic_trial_of_one_slot_is_not_many(driver: Driver) -> None:
    elastic = {"slots_per_trial": {"min": 1, "max": 2, "keep_seconds": 0}}
    driver.feed(joined("a", 2), submitted(1, **elastic), *requested(1, 1), submitted(2, slots=1), *requested(2, 1))
    said = texts(driver)
    driver.feed(exited("1-1-1", "preempted"), stopped("2-1"), exited("2-1-1"))
    said += texts(driver)
    assert any("saves a checkpoint and goes on with 2 slots instead of 1" in text for text in said)
    assert [text for text in said if WRONG_NUMBER.search(text)] == []
