"""Under fair share, gangs that are larger than their share: each test names one promise."""

from __future__ import annotations

from collections import Counter

import pytest

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.services.scheduler.explain import explain
from tenuto.services.scheduler.policies.turns import TURN_US
from tests.support.scheduler_driver import Driver, exited, fair, held, joined, requested, stopped, submitted

MINUTE = 60_000_000
SMALL_MINUTES, SAVE_MINUTES = 5, 10


class Story:
    """Minute by minute: small trials take five, gangs as long as is said, each saves every ten and leaves within one."""

    def __init__(self, gang_minutes: int) -> None:
        self.driver, self.gang_minutes = Driver(checks=False), gang_minutes
        self.slot_minutes: Counter[int] = Counter()
        self.began: dict[str, int] = {}
        self.minute = 0

    def run(self, minutes: int) -> dict[int, float]:
        """Slots that each experiment had on average."""
        self.slot_minutes.clear()
        for _ in range(minutes):
            self.minute += 1
            self.driver.time_passes(MINUTE)
            for item in sorted(self.driver.state.allocations):
                if item in self.driver.state.allocations:  # The events of those before it may have ended it.
                    self._go_on(item)
            self.slot_minutes.update(held(self.driver))
        return {key: slots / minutes for key, slots in sorted(self.slot_minutes.items())}

    def _go_on(self, item: str) -> None:
        allocation = self.driver.state.allocations[item]
        age = self.minute - self.began.setdefault(item, self.minute)
        trial = item.rsplit("-", 1)[0]
        if allocation.leaving:
            self.driver.feed(exited(item, "preempted"))
        elif age >= (SMALL_MINUTES if allocation.size == 1 else self.gang_minutes):
            self.driver.feed(stopped(trial), exited(item))
        elif age and age % SAVE_MINUTES == 0:
            self.driver.feed(
                CheckpointSaved(
                    trial_id=trial, allocation_id=item, checkpoint_id=f"{item}-{self.minute}", batches=1, length=1,
                    files=(), size_bytes=0, location="x",
                )
            )  # fmt: skip


@pytest.mark.parametrize("gang", [5, 6, 8])
def test_a_gang_larger_than_its_share_has_it_in_time(gang: int) -> None:
    """Two equal users of 8 slots, one with small trials without end: each gets 4, on average of ten hours."""
    story = Story(gang_minutes=10_000)
    story.driver.feed(fair(), joined("a", 4), joined("b", 4), submitted(1, user="ada"), *requested(1, *range(1, 2_000)))
    story.driver.feed(submitted(2, slots=gang, user="bob"), *requested(2, 1, 2))
    got = story.run(600)
    assert got == pytest.approx({1: 4, 2: 4}, abs=0.4)
    changes = Counter(event.type for event in story.driver.log)["AllocationPreempted"]
    assert changes <= 9 * 600 * MINUTE / TURN_US, "no more than one change of hands in a turn"
    story.driver.core.check(story.driver.state)
    assert verify_decisions(story.driver.core, story.driver.log).ok
    assert story.driver.core.dump(fold(story.driver.core, story.driver.log)) == story.driver.core.dump(story.driver.state)


def test_three_gangs_as_large_as_the_pool_take_turns() -> None:
    story = Story(gang_minutes=10_000)
    story.driver.feed(fair(), joined("a", 8))
    for number, user in enumerate("abc", start=1):
        story.driver.feed(submitted(number, slots=8, user=user), *requested(number, 1))
    got = story.run(900)
    assert all(slots > 1.3 for slots in got.values()), got
    assert len(got) == 3


def test_short_trials_of_a_large_gang_follow_each_other_in_one_turn() -> None:
    story = Story(gang_minutes=6)
    story.driver.feed(fair(), joined("a", 8), submitted(1, user="ada"), *requested(1, *range(1, 2_000)))
    story.driver.feed(submitted(2, slots=8, user="bob"), *requested(2, *range(1, 100)))
    got = story.run(600)
    assert got == pytest.approx({1: 4, 2: 4}, abs=0.8)


def test_who_waits_for_a_turn_is_told_when() -> None:
    driver = Driver()
    driver.feed(fair(), joined("a", 8), submitted(1, user="ada"), *requested(1, *range(1, 20)))
    driver.feed(submitted(2, slots=8, user="bob"), *requested(2, 1))
    row = next(row for row in explain(driver.state, "default", driver.now_us) if row.experiment_id == 2)
    assert "in turn with the others" in row.text
    assert row.expected_us == driver.state.experiments[2].idle_since_us + TURN_US


def test_a_gang_that_may_not_start_has_no_turn() -> None:
    """Its limit would keep it from its slots, and the others would have lost theirs for nothing."""
    driver = Driver()
    driver.feed(fair(), joined("a", 8), submitted(1, user="ada"), *requested(1, *range(1, 20)))
    driver.feed(submitted(2, slots=8, user="bob", max_slots=7), *requested(2, 1))
    driver.time_passes(3 * TURN_US)
    assert [data.TYPE for data in driver.feed(*requested(1, 20), stopped("1-1"), exited("1-1-1"))][:1] == ["AllocationReleased"]
    assert held(driver) == {1: 8}
