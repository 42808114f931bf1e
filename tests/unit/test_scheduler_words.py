"""The scheduler's sentences about decisions and reasons for waiting: true and grammatical."""

from __future__ import annotations

import json
import re
from typing import Literal

import pytest

from tenuto.cli.jobs import _sentence
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationResized
from tenuto.schemas.events.request import PoolPolicyChanged
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.schemas.queue import QueueRow
from tenuto.services.scheduler.explain import ROWS_MAX, explain
from tests.support.said import said
from tests.support.scheduler_driver import Driver, exited, fair, joined, requested, stopped, submitted

WRONG_NUMBER = re.compile(
    r"(?<![-\d])(?<!of )1 (slots|trials|agents|more agents|are)\b|(?<![-\d])(0|[2-9]|[1-9]\d+) (slot|agent)\b|1 slot are"
)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def texts(driver: Driver) -> list[str]:
    rows = [row for pool in sorted(driver.state.pools) for row in explain(driver.state, pool, driver.now_us)]
    return [text for event in driver.log if (text := said(event.data))] + [row.text for row in rows]


def queue(driver: Driver, pool: str = "default") -> dict[int, QueueRow]:
    return {row.experiment_id: row for row in explain(driver.state, pool, driver.now_us)}


@pytest.mark.parametrize("policy", ["priority", "fair_share"])
@pytest.mark.parametrize("size", [1, 2])
def test_one_is_not_many(driver: Driver, policy: str, size: int) -> None:
    told: list[str] = []
    if policy == "fair_share":
        driver.feed(fair())
    driver.feed(*(joined(f"node-{n}", size) for n in range(4)))
    driver.feed(submitted(1, slots=size * 4, priority=50, max_slots=size * 4), *requested(1, 1, 2))
    driver.feed(submitted(2, slots=size, priority=10, user="olga"), *requested(2, 1, 2))
    told += texts(driver)
    driver.feed(exited("1-1-1", "preempted"))
    driver.feed(submitted(3, slots=size, priority=60, locality="agent", max_slots=size), *requested(3, 1, 2))
    driver.feed(submitted(4, slots=size * 3, priority=50), *requested(4, 1))
    driver.feed(submitted(5, slots=size, priority=1, locality="agent"), *requested(5, 1, 2))
    told += texts(driver)
    driver.feed(submitted(6, slots=99, priority=1), *requested(6, 1), stopped("2-1"))
    told += texts(driver)
    driver.feed(*(exited(item) for item in sorted(driver.state.allocations)))
    told += texts(driver)
    assert any("is free" in text or "are free" in text for text in told)
    assert [text for text in told if WRONG_NUMBER.search(text)] == []


def test_an_elastic_trial_of_one_slot_is_not_many(driver: Driver) -> None:
    elastic = {"slots_per_trial": {"min": 1, "max": 2, "keep_seconds": 0}}
    driver.feed(joined("a", 2), submitted(1, **elastic), *requested(1, 1), submitted(2, slots=1), *requested(2, 1))
    told = texts(driver)
    driver.feed(exited("1-1-1", "preempted"), stopped("2-1"), exited("2-1-1"))
    told += texts(driver)
    assert any("saves a checkpoint and goes on with 2 slots instead of 1" in text for text in told)
    assert [text for text in told if WRONG_NUMBER.search(text)] == []


def preempted(driver: Driver) -> AllocationPreempted:
    return next(event.data for event in reversed(driver.log) if isinstance(event.data, AllocationPreempted))


def test_what_gives_way_to_a_fair_share_is_told_the_shares(driver: Driver) -> None:
    driver.feed(joined("a", 8), fair(), submitted(1, priority=10, user="x"), *requested(1, *range(1, 13)))
    driver.feed(submitted(2, slots=2, priority=60, user="y"), *requested(2, 1))
    found = preempted(driver)
    assert said(found) == (
        "Trial 2-1 of experiment 2, which has 0 of its fair share of 2 slots, needs 2 slots, 2 more than are free or being "
        "freed; experiment 1 has 8, more than its share of 6, and its trial 1-7 gives way with 1."
    )
    shares = {"slots_held": 8, "slots_share": 6, "wanted_by_slots_held": 0, "wanted_by_slots_share": 2}
    assert found.reason.numbers.items() >= shares.items()
    driver.feed(*(exited(item, "preempted") for item in ("1-7-1", "1-8-1")))
    driver.feed(*requested(2, 2))
    assert preempted(driver).reason.numbers["wanted_by_slots_held"] == 2


def test_a_trial_that_grows_to_its_share_says_so(driver: Driver) -> None:
    driver.feed(joined("a", 4), fair(), submitted(1, user="x"), *requested(1, *range(1, 5)))
    elastic = {"slots_per_trial": {"min": 1, "max": 4, "keep_seconds": 0}}
    driver.feed(submitted(2, user="y", **elastic), *requested(2, 1))
    leaving = [item for item, allocation in sorted(driver.state.allocations.items()) if allocation.leaving]
    driver.feed(*(exited(item, "preempted") for item in leaving))
    fact = {"checkpoint_id": "c", "batches": 1, "length": 1, "files": (), "size_bytes": 0, "location": "x"}
    driver.feed(CheckpointSaved.model_validate({"trial_id": "2-1", "allocation_id": "2-1-1", **fact}))
    assert said(preempted(driver)).startswith(
        "Experiment 2 has 1 of its fair share of 2 slots; its running trials can use 1 slot more than are free"
    )


def test_an_elastic_trial_that_shrinks_to_a_fair_share_is_told_the_shares(driver: Driver) -> None:
    single = {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
    elastic = {"slots_per_trial": {"min": 1, "max": 4}, "searcher": single}
    driver.feed(joined("a", 4), fair(), submitted(1, user="x", **elastic), *requested(1, 1))
    driver.feed(submitted(2, user="y", slots=2), *requested(2, 1))
    found = next(event.data for event in reversed(driver.log) if isinstance(event.data, AllocationResized))
    assert said(found).endswith("Experiment 2 has 0 of its fair share of 2, and experiment 1 has 4, more than its share of 2.")
    assert found.reason.numbers.items() >= {"slots_held": 4, "slots_share": 2, "wanted_by_slots_share": 2}.items()


@pytest.mark.parametrize("policy", ["priority", "fifo"])
def test_one_that_outran_its_backfill_is_told_so(driver: Driver, policy: Literal["priority", "fifo"]) -> None:
    driver.feed(joined("a", 4), PoolPolicyChanged(pool="default", policy=policy))
    driver.feed(submitted(1, slots=2, expected=100, preemptible=False), *requested(1, 1), submitted(2, slots=4), *requested(2, 1))
    driver.feed(submitted(3, slots=2, expected=50), *requested(3, 1))
    driver.time_passes(200_000_000)
    driver.feed(stopped("1-1"), exited("1-1-1"))
    found = preempted(driver)
    assert re.sub(r"99|100", "N", said(found)) == (
        "Trial 2-1 needs 4 slots, 2 more than are free or being freed; trial 3-1 started ahead of a larger gang because it was "
        "expected to end before that one could start; it still runs N s after that time and gives way with 2."
    )
    assert found.reason.numbers["late_seconds"] in (99, 100)


def test_who_holds_only_slots_that_it_is_leaving_is_in_the_queue(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, slots=2, priority=60), *requested(1, 1, 2))
    driver.feed(submitted(2, slots=4, priority=10), *requested(2, 1))
    row = queue(driver)[1]
    assert (row.slots, row.slots_leaving, row.trials_waiting, row.trials_leaving) == (0, 4, 0, 2)
    assert (row.rule, row.text) == ("leaving", "2 trials give up 4 slots and wait for others as soon as their workers have left")
    driver.feed(stopped("1-1"))
    assert queue(driver)[1].text == "1 trial gives up 4 slots and waits for others as soon as its workers have left"
    driver.feed(stopped("1-2"))
    assert (queue(driver)[1].slots_leaving, queue(driver)[1].text) == (4, "")
    driver.feed(exited("1-1-1", "preempted"), exited("1-2-1", "preempted"))
    assert list(queue(driver)) == [2]


def test_what_a_trial_gives_up_to_be_smaller_is_being_freed(driver: Driver) -> None:
    single = {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
    driver.feed(joined("a", 4), submitted(1, slots_per_trial={"min": 1, "max": 4}, searcher=single), *requested(1, 1))
    driver.feed(submitted(2, slots=1), *requested(2, 1))
    row = queue(driver)[1]
    assert (row.slots, row.slots_leaving, row.rule) == (3, 1, "")
    assert queue(driver)[2].rule == "preempting" or queue(driver)[2].rule == "soon"


@pytest.mark.parametrize("policy", ["priority", "fifo"])
def test_the_position_is_the_order_in_which_they_are_served(driver: Driver, policy: Literal["priority", "fifo"]) -> None:
    driver.feed(joined("a", 4), PoolPolicyChanged(pool="default", policy=policy))
    driver.feed(submitted(1, slots=4, preemptible=False, priority=30), *requested(1, 1))
    for experiment, (priority, user) in enumerate([(60, "ada"), (10, "olga"), (40, "eve"), (1, "ada")], 2):
        driver.feed(submitted(experiment, slots=4, priority=priority, user=user, preemptible=False), *requested(experiment, 1))
    foretold = list(queue(driver))
    assert foretold == {"priority": [5, 3, 1, 4, 2], "fifo": [1, 2, 3, 4, 5]}[policy]
    assert served(driver) == [key for key in foretold if key != 1]


def served(driver: Driver) -> list[int]:
    """The experiments as they start, each when the one before it has ended."""
    order: list[int] = []
    while driver.state.allocations:
        (running,) = driver.state.allocations
        decided = driver.feed(stopped(running.rsplit("-", 1)[0]), exited(running))
        order += [data.experiment_id for data in decided if isinstance(data, AllocationGranted)]
    return order


def test_under_fair_share_who_is_furthest_below_its_share_is_first(driver: Driver) -> None:
    driver.feed(joined("a", 8), fair(), submitted(1, priority=10, user="x"), *requested(1, *range(1, 13)))
    driver.feed(submitted(2, slots=2, priority=60, user="y"), *requested(2, 1, 2, 3))
    driver.feed(submitted(3, priority=50, user="z", agent_labels=["k=none"]), *requested(3, 1))
    assert list(queue(driver)) == [2, 1, 3], "2 has nothing yet, 1 has all of its share, and 3 can have none here"


@pytest.mark.parametrize("locality", ["any", "agent"])
def test_a_held_gang_is_told_whose_end_it_waits_for(driver: Driver, locality: str) -> None:
    driver.feed(
        joined("a", 4), submitted(1, expected=100), *requested(1, 1), submitted(2, slots=2, expected=300), *requested(2, 1)
    )
    driver.feed(submitted(3, slots=4, locality=locality), *requested(3, 1))
    row = queue(driver)[3]
    assert row.text.endswith("; expected when trial 2-1 ends")
    assert (row.expected_trial, row.expected_us) == ("2-1", driver.state.pools["default"].ends[-1][0])
    shown = _sentence(json.loads(row.to_json()))
    assert re.search(r"; expected [^;]*\d\d:\d\d[^;]* when trial 2-1 ends$", shown), shown
    assert shown.count("expected") == 1


def test_a_long_queue_shows_what_is_next_of_each_owner() -> None:
    driver = Driver(checks=False)
    for experiment in range(1, ROWS_MAX + 100):
        driver.feed(submitted(experiment, user="ada", priority=50), *requested(experiment, 1))
    last = ROWS_MAX + 100
    driver.feed(
        submitted(last, user="olga", priority=50), *requested(last, 1), submitted(last + 1, priority=1), *requested(last + 1, 1)
    )
    rows = queue(driver)
    assert len(rows) == ROWS_MAX
    assert {last, last + 1} <= rows.keys()
    assert [row.position for row in rows.values()] == list(range(1, ROWS_MAX + 1))
    assert [key for key in (1, last) if not rows[key].text] == []
