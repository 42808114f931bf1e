"""The gateway's rules: what may be asked when, and that asking twice changes nothing more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.core import Refused
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import Description, ExperimentDescribed, NewUser, PolicySettings, ShareSettings
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentFailed
from tenuto.schemas.ids import name_id
from tenuto.services.gateway.cluster.commands import SetPoolPolicy, SetShare
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.experiments.commands import (
    ArchiveExperiment,
    CancelExperiment,
    ChangeExperiment,
    DescribeExperiment,
    PauseExperiment,
    ResumeExperiment,
    SubmitExperiment,
)
from tenuto.services.gateway.people.commands import CreateUser

CONFIG = ExperimentConfig.model_validate(
    {
        "name": "t",
        "entrypoint": "m:T",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
    }
)


class Driver:
    def __init__(self) -> None:
        self.core = GatewayCore()
        self.state = self.core.initial()
        self.log: list[Event] = []
        self.count = 0
        self.user = "ada"

    def record(self, data: EventData) -> None:
        self.count += 1
        event = Event(
            id=name_id(str(self.count)),
            stream=data.stream(),
            type=data.TYPE,
            schema_version=1,
            time_us=0,
            payload=data.to_json(),
            actor="t",
        )
        self.log.append(event)
        self.state = self.core.evolve(self.state, event)
        self.core.check(self.state)

    def ask(self, kind: Any, experiment_id: int | None = None, **fields: Any) -> list[EventData]:
        self.count += 1
        if experiment_id is not None:
            fields["experiment_id"] = experiment_id
        command = kind(id=name_id("command", str(self.count)), time_us=0, user=self.user, **fields)
        assert command.actor == f"user:{self.user}"
        drafts = list(self.core.decide(self.state, command))
        for draft in drafts:
            assert draft.TYPE in self.core.emits
            assert self.core.correlation_id(self.state, draft) == str(getattr(draft, "experiment_id", ""))
            self.record(draft)
        return drafts

    def submit(self) -> int:
        (event,) = self.ask(SubmitExperiment, config=CONFIG, seed=1, context_hash="00", context_size_bytes=10)
        return event.experiment_id  # type: ignore[attr-defined,no-any-return]


def types(events: list[EventData]) -> list[str]:
    return [event.TYPE for event in events]


def test_ids_count_from_one() -> None:
    driver = Driver()
    assert [driver.submit() for _ in range(3)] == [1, 2, 3]


def test_asking_twice_changes_nothing_more() -> None:
    driver = Driver()
    driver.submit()
    assert driver.ask(ResumeExperiment, 1) == []
    assert types(driver.ask(PauseExperiment, 1)) == ["ExperimentPauseRequested"]
    assert driver.ask(PauseExperiment, 1) == []
    assert types(driver.ask(ResumeExperiment, 1)) == ["ExperimentResumeRequested"]
    assert types(driver.ask(ChangeExperiment, 1, priority=3, max_slots=2)) == [
        "ExperimentPriorityChanged",
        "ExperimentSlotLimitChanged",
    ]
    assert driver.ask(ChangeExperiment, 1, priority=3, max_slots=2) == []
    assert types(driver.ask(ChangeExperiment, 1, max_slots=None)) == ["ExperimentSlotLimitChanged"]
    assert types(driver.ask(CancelExperiment, 1)) == ["ExperimentCancelRequested"]
    assert driver.ask(CancelExperiment, 1) == []
    assert types(driver.ask(CancelExperiment, 1, kill=True)) == ["ExperimentCancelRequested"]
    assert driver.ask(CancelExperiment, 1, kill=True) == []


@pytest.mark.parametrize("kind", [PauseExperiment, ResumeExperiment, CancelExperiment, ChangeExperiment])
def test_unknown_and_ended_experiments_are_told_apart(kind: Any) -> None:
    driver = Driver()
    driver.submit()
    driver.record(ExperimentFailed(experiment_id=1, error="e", trials=1))
    with pytest.raises(Refused, match="already ended") as ended:
        driver.ask(kind, 1)
    assert ended.value.code == "conflict"
    with pytest.raises(Refused, match="no experiment 2") as unknown:
        driver.ask(kind, 2)
    assert unknown.value.code == "not_found"


@pytest.mark.parametrize("kind", [PauseExperiment, ResumeExperiment, ChangeExperiment])
def test_an_experiment_that_is_being_canceled_cannot_be_changed(kind: Any) -> None:
    driver = Driver()
    driver.submit()
    driver.ask(CancelExperiment, 1)
    with pytest.raises(Refused, match="being canceled"):
        driver.ask(kind, 1)


ASKED = st.tuples(
    st.sampled_from(["submit", "pause", "resume", "cancel", "kill", "change", "end"]), st.integers(1, 4), st.integers(1, 3)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(ASKED, max_size=40))
def test_any_history(steps: list[tuple[str, int, int]]) -> None:
    driver = Driver()
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "pause": (PauseExperiment, {}),
        "resume": (ResumeExperiment, {}),
        "cancel": (CancelExperiment, {}),
        "kill": (CancelExperiment, {"kill": True}),
    }
    for name, experiment_id, number in steps:
        if name == "submit":
            driver.submit()
        elif name == "end":
            driver.record(ExperimentCanceled(experiment_id=experiment_id, trials=0))
        else:
            kind, arguments = kinds.get(name, (ChangeExperiment, {"priority": number}))
            try:
                driver.ask(kind, experiment_id, **arguments)
            except Refused:
                continue
            assert driver.ask(kind, experiment_id, **arguments) == []
    state = driver.core.initial()
    for event in driver.log:
        state = driver.core.load(driver.core.dump(driver.core.evolve(state, event)))
    assert driver.core.dump(state) == driver.core.dump(driver.state)


def test_limits_of_trials_change_where_the_search_allows_it() -> None:
    driver = Driver()
    driver.submit()
    assert types(driver.ask(ChangeExperiment, 1, max_concurrent_trials=3)) == ["ExperimentTrialLimitsChanged"]
    with pytest.raises(Refused, match="planned from the start"):
        driver.ask(ChangeExperiment, 1, max_trials=300)


@pytest.mark.parametrize("recovered", [False, True])
def test_what_is_not_named_of_a_share_or_a_policy_stays(recovered: bool) -> None:
    driver = Driver()
    driver.user = "admin"

    def ask(kind: Any, **fields: Any) -> Any:
        if recovered:
            driver.state = driver.core.load(driver.core.dump(driver.state))
        (event,) = driver.ask(kind, **fields)
        return event

    def changed(owner: str = "user", **fields: Any) -> tuple[float, int | None]:
        event = ask(SetShare, owner=owner, name="eve", settings=ShareSettings(**fields))
        return event.weight, event.max_slots

    def half_life(policy: str, **fields: Any) -> float | None:
        settings = PolicySettings.model_validate({"policy": policy, **fields})
        return ask(SetPoolPolicy, pool="default", settings=settings).usage_half_life_hours  # type: ignore[no-any-return]

    assert changed(max_slots=8) == (1.0, 8)
    assert changed(weight=2) == (2.0, 8)
    assert changed(max_slots=4) == (2.0, 4)
    assert changed("workspace", weight=3) == (3.0, None), "another owner of the same name"
    assert changed(max_slots=None) == (2.0, None)
    assert half_life("fair_share", usage_half_life_hours=24) == 24
    assert half_life("priority") == 24
    assert half_life("fair_share", usage_half_life_hours=None) is None
    assert half_life("fair_share") is None


def test_an_ended_experiment_is_described_by_its_owner_only() -> None:
    """The gate has judged by the views; the rules judge again by what they were told and know."""
    driver = Driver()
    driver.submit()
    description = Description(note="n")

    def describe(user: str, submitter: str = "ada") -> list[EventData]:
        driver.user = user
        return driver.ask(DescribeExperiment, 1, submitter=submitter, workspace="default", description=description)

    with pytest.raises(Refused, match="only ada or an admin"):
        describe("eve", submitter="eve")  # a live one is the one's who submitted it, whatever the command says
    driver.record(ExperimentCanceled(experiment_id=1, trials=0))
    assert describe("ada") == [ExperimentDescribed(experiment_id=1, note="n")]
    assert describe("admin") == [ExperimentDescribed(experiment_id=1, note="n")]
    with pytest.raises(Refused, match="only ada or an admin") as refused:
        describe("eve")
    assert refused.value.code == "forbidden"
    driver.user = "admin"
    driver.ask(CreateUser, new=NewUser(name="ada"), token_hash="0" * 64)
    with pytest.raises(Refused, match="an earlier user ada's; only an admin"):
        describe("ada")
    driver.user = "admin"
    with pytest.raises(Refused, match="There is no experiment 2") as refused:
        driver.ask(ArchiveExperiment, 2, submitter="ada", workspace="default")
    assert refused.value.code == "not_found"
