"""No allocation turns over without bound: starts without progress back off and end, whatever ends them; a trial that gets on is
never given up.

Launcher and tracker decide together here, as in a cluster: the launcher records the end and its pause, the tracker gives up."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.events.search import TrialExtended
from tenuto.schemas.events.trial import TrialFailed
from tenuto.schemas.ids import allocation_id
from tenuto.services.launcher.state.restarts import RESTART_PAUSE_SECONDS_MAX
from tenuto.services.tracker.policies.restart_limits import FRUITLESS_MAX
from tests.support import launcher_driver, tracker_driver
from tests.support.launcher_driver import PAUSED, WHY, preempted
from tests.support.tracker_driver import checkpoint

STARTS = 1_000
OUTCOMES = ["finished", "preempted", "paused", "failed", "lost"]
FAST_STARTS_MAX = 20
"""Starts of a trial without progress in its first ten minutes."""


@dataclass
class World:
    """One trial whose workers end again and again."""

    launcher: launcher_driver.Driver = field(default_factory=launcher_driver.Driver)
    tracker: tracker_driver.Driver = field(default_factory=lambda: tracker_driver.Driver(max_restarts=3))
    starts: int = 0
    waited: list[float] = field(default_factory=list)
    """Pause after each start, in seconds."""
    error: str = ""
    """Of the trial, once it is given up."""

    def __post_init__(self) -> None:
        self.launcher.join()

    def start(self, outcome: str, code: int | None = None, *, asked: bool = False, saves_at: int = 0) -> bool:
        """False: the trial is given up after this start. `saves_at`: batches of a checkpoint; 0: it saves none."""
        self.starts += 1
        allocation = allocation_id("1-1", self.starts)
        self.launcher.grant(number=self.starts)
        assert self.tracker.grant() == allocation
        if saves_at:
            for recorded in self.tracker.report(checkpoint(allocation, saves_at, name=f"c{self.starts}")):
                self.launcher.event(recorded)
        if asked and outcome == "paused":
            self.launcher.event(PAUSED)
        elif asked:
            self.launcher.event(preempted(allocation=allocation))
        # A message of its own each time: the same error twice is another rule.
        [exited] = self.launcher.exited(outcome, code, allocation, error=f"model_def.py:{self.starts}: ValueError: x")
        assert isinstance(exited, WorkersExited)
        self.waited.append((exited.restart_at_us or 0) / 1e6)
        decided = self.tracker.event(exited)
        self.tracker.release(allocation)
        if asked and outcome == "paused":
            self.launcher.event(TrialExtended(experiment_id=1, trial_id="1-1", target_length=10, reason=WHY))
        self.error = next((data.error for data in decided if isinstance(data, TrialFailed) and data.final), "")
        return not self.error


def ends(world: World, acts: Any) -> int:
    """Starts until the trial is given up."""
    for act in acts:
        if not world.start(**act):
            return world.starts
        assert world.starts < STARTS, "it turns over for ever"
    raise AssertionError("it never ended")


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("code", [None, 0, 1, 80, 81, 82, 83, 84, 85, 86, 134, 137, 139])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_without_progress_backs_off_and_ends(outcome: str, code: int | None, asked: bool) -> None:
    world = World()
    assert ends(world, cycle([{"outcome": outcome, "code": code, "asked": asked}])) <= FRUITLESS_MAX + 1
    total, early = 0.0, 0
    for pause in world.waited:
        early += total < 600
        total += pause
    assert early <= FAST_STARTS_MAX, "it does not back off"
    assert max(world.waited) <= RESTART_PAUSE_SECONDS_MAX


act = st.fixed_dictionaries(
    {"outcome": st.sampled_from(OUTCOMES), "code": st.sampled_from([None, 0, 1, 80, 82, 137]), "asked": st.booleans()}
)


@settings(max_examples=30, deadline=None)
@given(st.lists(act, min_size=1, max_size=6))
def test_any_mixture_without_progress_ends(acts: list[dict[str, Any]]) -> None:
    """Also one that alternates, so that no outcome starts the count of another again."""
    assert ends(World(), cycle(acts)) <= FRUITLESS_MAX + 1


@pytest.mark.parametrize("outcome", ["preempted", "lost"])
def test_checkpoints_at_the_same_place_are_no_progress(outcome: str) -> None:
    assert ends(World(), cycle([{"outcome": outcome, "code": 80, "saves_at": 7}])) <= FRUITLESS_MAX + 2


@pytest.mark.parametrize(("outcome", "asked"), [("preempted", True), ("preempted", False), ("paused", True), ("lost", False)])
def test_a_trial_that_gets_on_is_never_given_up_and_never_waits(outcome: str, asked: bool) -> None:
    world = World()
    for number in range(1, STARTS + 1):
        assert world.start(outcome, 137, asked=asked, saves_at=number)
    assert set(world.waited) == {0.0}


@pytest.mark.parametrize("every", [1, 7, FRUITLESS_MAX])
def test_a_preempted_trial_that_saves_is_never_given_up(every: int) -> None:
    """One of low priority, whose slots others take again and again: each checkpoint is behind the last, by one batch only; some
    of its runs (`every`) have come so far. Its checkpoints may be deleted meanwhile, as retention does."""
    world = World()
    for number in range(1, STARTS + 1):
        assert world.start("preempted", asked=True, saves_at=number if number % every == 0 else 0), f"given up at {number}"
    assert world.tracker.state.experiments[1].trials["1-1"].ends.failures == 0


@pytest.mark.parametrize(
    ("outcome", "remedy"),
    [
        ("preempted", "give it a more urgent resources.priority, or a shorter min_checkpoint_period."),
        ("paused", "give it a shorter min_checkpoint_period."),
        ("lost", "Look at its agents and their network (`tenuto agent ls`), then `tenuto exp continue`."),
    ],
)
def test_the_end_of_one_that_does_not_get_on_says_what_to_do(outcome: str, remedy: str) -> None:
    world = World()
    assert ends(world, cycle([{"outcome": outcome, "asked": outcome in ("preempted", "paused")}])) == FRUITLESS_MAX + 1
    assert world.error.startswith(f"the trial's workers {'were lost' if outcome == 'lost' else 'ended'} 101 times in a row")
    assert world.error.endswith(remedy)


def test_a_trial_that_gets_on_between_preemptions_in_vain_is_never_given_up() -> None:
    """The scheduler takes its slots before it has trained, nearly each time."""
    world = World()
    for number in range(1, STARTS + 1):
        assert world.start("preempted", 80, asked=True, saves_at=number if number % 50 == 0 else 0)
