"""Deletions of experiments: what is refused, what can be taken back, and when they are carried out."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.kernel.core import Refused
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentDeleted, ExperimentDeletionCanceled, ExperimentDeletionRequested
from tenuto.schemas.events.search import ExperimentCanceled
from tenuto.schemas.ids import name_id
from tenuto.schemas.record import Parent, TrialSource
from tenuto.schemas.sentences import said
from tenuto.services.gateway.experiments.commands import CarryOutDeletion, DeleteExperiment, KeepExperiment, SubmitExperiment
from tests.unit.test_gateway_core import CONFIG, Driver

HOUR_US = 3_600_000_000


def ended(count: int = 1) -> Driver:
    driver = Driver()
    for number in range(1, count + 1):
        driver.submit()
        driver.record(ExperimentCanceled(experiment_id=number, trials=0))
    return driver


def delete(driver: Driver, experiment_id: int = 1, grace_us: int = HOUR_US, user: str = "ada") -> list[EventData]:
    driver.user = user
    return driver.ask(DeleteExperiment, experiment_id, submitter="ada", workspace="default", grace_us=grace_us)


def keep(driver: Driver) -> list[EventData]:
    return driver.ask(KeepExperiment, 1, submitter="ada", workspace="default")


def carry_out(driver: Driver, time_us: int) -> list[EventData]:
    command = CarryOutDeletion(id=name_id("due", str(time_us)), time_us=time_us, experiment_id=1)
    drafts = list(driver.core.decide(driver.state, command))
    for draft in drafts:
        driver.record(draft)
    return drafts


def refused(ask: Any, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(Refused) as error:
        ask(*arguments)
    return error.value.code, str(error.value)


def from_(driver: Driver, parent: Parent) -> list[EventData]:
    return driver.ask(SubmitExperiment, config=CONFIG, seed=1, context_hash="00", context_size_bytes=10, parent=parent)


def test_a_deletion_is_carried_out_when_it_is_due_and_only_then() -> None:
    driver = ended()
    assert delete(driver) == [ExperimentDeletionRequested(experiment_id=1, user="ada", due_us=HOUR_US)]
    assert delete(driver) == [], "the same again"
    assert delete(driver, grace_us=2 * HOUR_US) == [], "a later one does not put it off"
    assert carry_out(driver, HOUR_US - 1) == []
    [event] = carry_out(driver, HOUR_US)
    assert isinstance(event, ExperimentDeleted)
    reason = said(event.TYPE, event.reason.rule, event.reason.numbers, {"experiment_id": 1}, "gateway/3")
    assert reason == "ada asked for the deletion of experiment 1 1 h before."
    assert carry_out(driver, HOUR_US + 1) == [], "once"
    assert driver.state.deleted == (1,)
    for ask in (delete, keep):
        assert refused(ask, driver) == ("gone", "Experiment 1 is deleted, and cannot be brought back.")


def test_it_can_be_taken_back_and_hurried() -> None:
    driver = ended()
    assert keep(driver) == [], "there is nothing to take back"
    delete(driver)
    assert keep(driver) == [ExperimentDeletionCanceled(experiment_id=1)]
    assert carry_out(driver, 2 * HOUR_US) == []
    delete(driver)
    assert delete(driver, grace_us=0) == [ExperimentDeletionRequested(experiment_id=1, user="ada", due_us=0)]
    assert len(carry_out(driver, 0)) == 1


def test_what_runs_or_is_needed_is_not_deleted() -> None:
    driver = ended(3)
    driver.submit()
    assert refused(delete, driver, 4)[1].startswith("Experiment 4 has not ended; delete it after its end")
    assert refused(delete, driver, 9)[0] == "not_found"
    assert refused(delete, driver, 1, HOUR_US, "eve")[0] == "forbidden"
    source = TrialSource(
        trial_number=1, seed=1, checkpoint_id="2-1-1-10", location="store://shared/2/2-1/manifests/x.json", batches=10
    )
    driver.user = "ada"
    from_(driver, Parent(relation="reproduction", experiment_id=1, trial_id="1-1", sources=(source,)))
    for needed in (1, 2):  # of a reproduction of what was continued, the checkpoints are its grandparent's
        code, message = refused(delete, driver, needed)
        assert (code, message) == (
            "conflict",
            f"Experiment {needed} is what experiment 5 was made from and may start from; delete it after the end of experiment"
            " 5.",
        )
    assert delete(driver, 3), "which nothing was made from"
    driver.record(ExperimentCanceled(experiment_id=5, trials=0))
    assert delete(driver, 1)


def test_nothing_is_made_from_what_is_to_be_deleted() -> None:
    driver = ended()
    fork = Parent(relation="fork", experiment_id=1)
    delete(driver)
    assert "`tenuto exp undelete 1` keeps it" in refused(from_, driver, fork)[1]
    keep(driver)
    from_(driver, fork)
    driver.record(ExperimentCanceled(experiment_id=2, trials=0))
    delete(driver, grace_us=0)
    carry_out(driver, 0)
    assert refused(from_, driver, fork) == ("conflict", "Experiment 1 is deleted, so no other can be made from it.")
