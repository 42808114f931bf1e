"""Agents that run in an image as a whole: trials that name it start there, and no others do."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted, CapacityDemand, CapacityWanted
from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.events.request import ExperimentPoolChanged
from tenuto.services.scheduler.explain import explain
from tests.support.scheduler_driver import Driver, joined, requested, submitted

ONE, TWO = "example.org/one:1", "example.org/two:1"


def provisioned(*node_images: str) -> PoolProvisioned:
    node_types = [{"slots": 4, **({"node_images": node_images} if node_images else {})}]
    return PoolProvisioned.model_validate({"pool": "default", "provisioner": "kubernetes", "node_types": node_types})


def granted(decided: list[EventData]) -> dict[str, list[str]]:
    return {data.trial_id: [part.agent_id for part in data.slots] for data in decided if isinstance(data, AllocationGranted)}


def wanted(decided: list[EventData]) -> tuple[CapacityDemand, ...]:
    return [data for data in decided if isinstance(data, CapacityWanted)][-1].demands


def test_each_trial_starts_on_the_agent_of_its_own_image() -> None:
    driver = Driver()
    driver.feed(submitted(1, image=ONE), *requested(1, 1), submitted(2, image=TWO), *requested(2, 1))
    driver.feed(submitted(3), *requested(3, 1))
    assert granted(driver.feed(joined("a", 2, image=TWO))) == {"2-1": ["a"]}
    assert granted(driver.feed(joined("b", 2, image=ONE))) == {"1-1": ["b"]}
    assert granted(driver.feed(joined("c", 2))) == {"3-1": ["c"]}


@pytest.mark.parametrize("slots", [0, 1, 2, 3])
def test_what_names_no_image_never_starts_in_one_whenever_it_comes(slots: int) -> None:
    driver = Driver()
    driver.feed(submitted(1, slots=slots), *requested(1, 1))
    assert granted(driver.feed(joined("a", 2, image=ONE))) == {}
    assert granted(driver.feed(submitted(2, slots=slots), *requested(2, 1))) == {}
    driver.feed(submitted(3, slots=slots, pool="other"), *requested(3, 1))
    assert granted(driver.feed(ExperimentPoolChanged(experiment_id=3, pool="default"))) == {}
    assert granted(driver.feed(submitted(4, slots=slots, pool="other", fallback_pools=["default"]), *requested(4, 1))) == {}
    assert granted(driver.feed(joined("b", 3)))["1-1"] == ["b"]


@pytest.mark.parametrize(
    "environment", [{"mounts": ["/data"]}, {"pull": "always"}, {"read_only": True}, {"registry_auth": "mine"}]
)
def test_what_needs_a_container_of_its_own_does_not_start_in_the_image(environment: dict[str, Any]) -> None:
    driver = Driver()
    driver.feed(submitted(1, image=ONE, environment=environment), *requested(1, 1))
    assert granted(driver.feed(joined("a", 2, image=ONE))) == {}
    assert granted(driver.feed(joined("b", 2, runtimes=("process", "docker")))) == {"1-1": ["b"]}


def test_containers_and_agents_in_the_image_serve_alike() -> None:
    driver = Driver()
    driver.feed(joined("a", 1, image=ONE), joined("b", 1, runtimes=("process", "docker")))
    decided = driver.feed(submitted(1, image=ONE), *requested(1, 1, 2, 3))
    assert sorted(item for agents in granted(decided).values() for item in agents) == ["a", "b"]


@pytest.mark.parametrize("slots", [0, 1])
def test_a_trial_that_waits_beside_agents_in_other_images_is_told_so(slots: int) -> None:
    driver = Driver()
    driver.feed(joined("a", 2, image=ONE), joined("b", 2, image=TWO), submitted(1, slots=slots), *requested(1, 1))
    driver.feed(submitted(2, slots=slots, image=ONE, environment={"pull": "always"}), *requested(2, 1))
    driver.feed(submitted(3, slots=slots, image="example.org/three:3"), *requested(3, 1))
    told = {row.experiment_id: row.text for row in explain(driver.state, "default", driver.now_us)}
    assert set(told) == {1, 2, 3}
    for text in told.values():
        assert "(2 agents there run in an image that it does not name, for trials that do)" in text


def test_labels_and_devices_count_in_an_image_too() -> None:
    driver = Driver()
    driver.feed(submitted(1, image=ONE, agent_labels=["zone=a"]), *requested(1, 1))
    assert granted(driver.feed(joined("a", 1, image=ONE))) == {}
    assert granted(driver.feed(joined("b", 1, image=ONE, labels=("zone=a",)))) == {"1-1": ["b"]}


def test_a_pool_with_node_images_is_told_what_may_run_so() -> None:
    driver = Driver()
    driver.feed(provisioned("example.org/*"))
    driver.feed(submitted(1, image=ONE), submitted(2, image=ONE, environment={"mounts": ["/data"]}), submitted(3))
    found = wanted(driver.feed(*requested(1, 1), *requested(2, 1), *requested(3, 1)))
    assert [(item.image, item.node_image) for item in found] == [(ONE, True), (ONE, False), ("", False)]
    again = wanted(driver.feed(joined("a", 1, image=ONE)))
    assert [item.experiment_id for item in again] == [2, 3], "the agent in the image serves the first, and no other"


def test_a_long_queue_of_one_image_hides_no_other() -> None:
    """The nodes of the first image may never come."""
    driver = Driver()
    driver.feed(PoolProvisioned.model_validate({**provisioned("*").model_dump(), "nodes_max": 2}))
    driver.feed(submitted(1, image=ONE), submitted(2, image=TWO), submitted(3))
    found = wanted(driver.feed(*requested(1, *range(1, 11)), *requested(2, 1), *requested(3, 1)))
    assert [(item.image, item.count, item.experiment_id) for item in found] == [(ONE, 8, 1), (TWO, 1, 2), ("", 1, 3)]


def test_a_trial_without_slots_hides_none_of_another_image() -> None:
    driver = Driver()
    driver.feed(provisioned("*"))
    for number, image in enumerate([ONE, ONE, TWO, None], 1):
        driver.feed(submitted(number, slots=0, **({"image": image} if image else {})))
    found = wanted(driver.feed(*[item for number in range(1, 5) for item in requested(number, 1)]))
    assert [(item.image, item.slots, item.count, item.experiment_id) for item in found] == [
        (ONE, 0, 1, 1), (TWO, 0, 1, 3), ("", 0, 1, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("slots", [0, 1])
def test_what_needs_containers_hides_nothing_that_needs_none(slots: int) -> None:
    driver = Driver()
    driver.feed(PoolProvisioned.model_validate({**provisioned("*").model_dump(), "nodes_max": 1}))
    driver.feed(submitted(1, slots=slots, image=ONE, environment={"pull": "always"}))
    driver.feed(submitted(2, slots=slots, image=ONE), submitted(3, slots=slots))
    found = wanted(driver.feed(*requested(1, *range(1, 11)), *requested(2, 1), *requested(3, 1)))
    assert [(item.image, item.node_image, item.experiment_id) for item in found] == [
        (ONE, False, 1),
        (ONE, True, 2),
        ("", False, 3),
    ]


def test_other_pools_are_told_as_before() -> None:
    driver = Driver()
    driver.feed(provisioned())
    driver.feed(submitted(1, image=ONE))
    [found] = wanted(driver.feed(*requested(1, 1)))
    assert "node_image" not in found.to_json().decode()


def test_more_images_than_an_event_holds_are_told_when_there_is_room_for_them() -> None:
    driver = Driver(checks=False)
    driver.feed(PoolProvisioned.model_validate({**provisioned("*").model_dump(), "nodes_max": 1_000}))
    for number in range(1, 104):
        driver.feed(submitted(number, image=f"example.org/i:{number}"))
        decided = driver.feed(*requested(number, 1))
    found = driver.state.provisioned["default"].wanted
    assert len(found) == 100
    assert {item.count for item in found} == {1}, "a node in one image would be of no use for another"
    assert decided == []
