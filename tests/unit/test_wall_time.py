"""Experiments run for as long as they may: what counts as running, whose limit it is, and what is recorded at its end."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.core import Refused
from tenuto.kernel.decision import step
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import WorkspaceSettings
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import ExperimentCanceled
from tenuto.schemas.sentences import sentence
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.experiments.commands import CancelExperiment, ChangeExperiment, EndOverdue, SubmitExperiment
from tenuto.services.gateway.experiments.policies.wall_time import all_overdue, wall_us
from tenuto.services.gateway.people.commands import ChangeWorkspace

ID = UUID(int=9)
HOUR = 3_600_000_000
WHY = Reason(rule="test")
SLOTS = (AgentSlots(agent_id="node", slot_ids=(0,)),)


def config(**resources: Any) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        {
            "entrypoint": "m:T",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
            "resources": resources,
        }
    )


class Driver:
    """A core with a clock, in hours."""

    def __init__(self) -> None:
        self.core, self.count, self.now = GatewayCore(), 0, 0.0
        self.state = self.core.initial()

    @property
    def now_us(self) -> int:
        return int(self.now * HOUR)

    def tell(self, command: Any) -> list[Any]:
        self.state, events = step(self.core, self.state, command, seen_position=0, time_us=self.now_us)
        self.check()
        return [event.data for event in events]

    def ask(self, order: Any, **fields: Any) -> list[Any]:
        self.count += 1
        return self.tell(order(id=uuid5(ID, str(self.count)), time_us=self.now_us, user="admin", **fields))

    def limit(self, hours: float) -> None:
        self.ask(ChangeWorkspace, workspace="default", settings=WorkspaceSettings(wall_hours_max=hours))

    def submit(self, **resources: Any) -> int:
        [data] = self.ask(SubmitExperiment, config=config(**resources), seed=5, context_hash="c" * 64, context_size_bytes=9)
        return int(data.experiment_id)

    def happens(self, data: EventData) -> None:
        self.count += 1
        event = Event(
            id=uuid5(ID, str(self.count)), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
            time_us=self.now_us, payload=data.to_json(), actor="test/1",
        )  # fmt: skip
        self.state = self.core.evolve(self.state, event)
        self.check()

    def check(self) -> None:
        self.core.check(self.state)
        assert self.core.codec.load(self.core.codec.dump(self.state)) == self.state

    def grant(self, allocation: str = "1-1-1") -> None:
        named = {"allocation_id": allocation, "trial_id": allocation[:3], "experiment_id": int(allocation[0])}
        self.happens(AllocationGranted(pool="default", slots=SLOTS, reason=WHY, **named))

    def release(self, allocation: str = "1-1-1") -> None:
        named = {"allocation_id": allocation, "trial_id": allocation[:3], "experiment_id": int(allocation[0])}
        self.happens(AllocationReleased(pool="default", reason=WHY, **named))

    def look(self) -> list[Any]:
        """As the gateway does now and then."""
        self.count += 1
        found = list(all_overdue(self.state, self.now_us))
        for number in found:
            return self.tell(EndOverdue(id=uuid5(ID, str(self.count)), time_us=self.now_us, experiment_id=number))
        return []


def test_an_experiment_that_ran_for_its_time_is_canceled_and_the_record_says_why() -> None:
    driver = Driver()
    driver.limit(8.0)
    driver.submit()
    driver.now = 100.0
    assert driver.look() == [], "it waited in the queue"
    driver.grant()
    driver.now = 107.9
    assert driver.look() == []
    driver.now = 108.0
    reached, canceled = driver.look()
    assert (reached.TYPE, canceled.TYPE, canceled.kill) == ("ExperimentTimeLimitReached", "ExperimentCancelRequested", False)
    assert reached.reason.numbers == {"limit_hours": 8.0, "wall_seconds": 28_800.0, "workspace": "default"}
    told = sentence(reached.TYPE, reached.model_dump(mode="json"), "gateway/3")
    assert told == (
        "Experiment 1 has run for 8.0 h, and an experiment of workspace default may run for 8 h; so it is canceled, and its "
        "trials save checkpoints."
    )
    assert driver.look() == [], "once"


def test_pauses_and_the_queue_do_not_count_and_two_trials_at_once_count_once() -> None:
    driver = Driver()
    driver.submit(max_wall_hours=4)
    driver.grant("1-1-1")
    driver.now = 1.0
    driver.grant("1-2-1")
    driver.now = 2.0
    driver.release("1-1-1")
    driver.now = 3.0
    driver.release("1-2-1")
    driver.now = 50.0
    assert wall_us(driver.state.live[1], driver.now_us) == 3 * HOUR
    assert driver.look() == []
    driver.grant("1-1-2")
    driver.now = 50.9
    assert driver.look() == []
    driver.now = 51.0
    reached, _ = driver.look()
    told = sentence(reached.TYPE, reached.model_dump(mode="json"), "gateway/3")
    assert "has run for 4.0 h, and it, by resources.max_wall_hours, may run for 4 h" in told


def test_a_limit_that_is_set_later_gives_more_time_and_takes_none_away() -> None:
    driver = Driver()
    driver.submit()
    driver.limit(1.0)
    driver.submit()
    driver.submit(max_wall_hours=0.5)
    for allocation in ("1-1-1", "2-1-1", "3-1-1"):
        driver.grant(allocation)
    driver.now = 0.75
    assert driver.look()[0].experiment_id == 3, "the shorter of the two"
    driver.now = 2.0
    driver.limit(3.0)
    assert driver.look() == [], "the first had no limit, the second has more"
    driver.limit(0.5)
    assert [item.experiment_id for item in driver.look()] == [2, 2], "one hour it had from the start"
    driver.now = 1_000.0
    assert driver.look() == []
    driver.submit()
    driver.grant("4-1-1")
    driver.limit(0)
    driver.now = 2_000.0
    assert driver.look() == [], "the limit is taken away"


def test_a_configuration_that_asks_for_more_is_refused() -> None:
    driver = Driver()
    driver.limit(8)
    with pytest.raises(Refused, match=r"run for 8 h at most, and resources\.max_wall_hours is 8\.5: say at most 8"):
        driver.submit(max_wall_hours=8.5)
    assert driver.submit(max_wall_hours=8) == 1


def test_what_ended_or_is_being_canceled_is_left_alone() -> None:
    driver = Driver()
    driver.limit(1)
    driver.submit()
    driver.submit()
    driver.grant("1-1-1")
    driver.grant("2-1-1")
    driver.now = 5.0
    late = EndOverdue(id=uuid5(ID, "late"), time_us=driver.now_us, experiment_id=1)
    driver.ask(CancelExperiment, experiment_id=1)
    driver.happens(ExperimentCanceled(experiment_id=2, trials=1))
    assert driver.look() == driver.tell(late) == []
    driver.release("2-1-1")  # of an experiment that is known no more


@given(st.lists(st.tuples(st.sampled_from(["grant", "release", "look"]), st.integers(1, 3), st.integers(0, 120)), max_size=40))
def test_the_time_is_that_in_which_anything_was_held(steps: list[tuple[str, int, int]]) -> None:
    """Compared with counting each minute."""
    driver, held, minutes, now = Driver(), set[int](), 0, 0
    driver.submit(max_wall_hours=1_000)
    for what, trial, passes in steps:
        minutes += passes if held else 0
        now += passes
        driver.now = now / 60
        if what == "grant" and trial not in held:
            held.add(trial)
            driver.grant(f"1-{trial}-1")
        elif what == "release" and trial in held:
            held.remove(trial)
            driver.release(f"1-{trial}-1")
    assert abs(wall_us(driver.state.live[1], driver.now_us) / 60e6 - minutes) < 1e-3


def test_the_limit_of_a_running_experiment_changes_within_its_workspace_and_not_to_what_has_passed() -> None:
    driver = Driver()
    driver.submit(max_wall_hours=2)
    driver.grant()
    driver.now = 1.5
    [changed] = driver.ask(ChangeExperiment, experiment_id=1, max_wall_hours=4.0)
    assert (changed.TYPE, changed.max_wall_hours) == ("ExperimentTimeLimitChanged", 4.0)
    assert driver.ask(ChangeExperiment, experiment_id=1, max_wall_hours=4.0) == []
    driver.now = 3.0
    assert driver.look() == []
    with pytest.raises(Refused, match=r"has run for 3 h, and this would let it run for 3 h; give it more, or end it"):
        driver.ask(ChangeExperiment, experiment_id=1, max_wall_hours=3.0)
    driver.limit(8.0)
    with pytest.raises(Refused, match="run for 8 h at most"):
        driver.ask(ChangeExperiment, experiment_id=1, max_wall_hours=9.0)
    driver.ask(ChangeExperiment, experiment_id=1, max_wall_hours=None)
    driver.now = 1_000.0
    assert driver.look() == [], "its workspace had no limit when it was submitted"
    driver.limit(0.0)
    driver.ask(ChangeExperiment, experiment_id=1, max_wall_hours=1_001.0)
    driver.now = 1_001.0
    reached, _ = driver.look()
    assert reached.reason.numbers == {"limit_hours": 1_001.0, "wall_seconds": 3_603_600.0}
