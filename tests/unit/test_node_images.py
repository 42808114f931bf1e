"""Nodes that run in a trial's image as a whole: one is requested for the image that waits, and serves no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from tenuto.schemas.events.agent import IMAGES_LABEL
from tenuto.schemas.events.node import NodeFailed, NodeReleased, NodeRequested
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.provisioning import NodeType
from tenuto.schemas.sentences import sentence
from tenuto.services.launcher.effects.nodes import environment_of
from tenuto.services.launcher.policies.provisioning.requests import DOUBTFUL_FAILURES, pack, standings
from tenuto.services.launcher.state.nodes import NodeTypeBackoff
from tests.support.nodes_driver import NodesDriver, demand, failed, released, requested

FOUR = {"name": "four", "slots": 4, "node_images": ["example.org/*", "torch:2"]}
ONE, TWO, OTHER = "example.org/one:1", "torch:2", "elsewhere.org/other:1"


def driver(**settings: Any) -> NodesDriver:
    return NodesDriver(provisioner="kubernetes", node_types=[FOUR], **settings)


def wants(image: str, slots: int = 2, count: int = 1, experiment: int = 1, **rest: Any) -> CapacityDemand:
    given = {"labels": (IMAGES_LABEL,), "node_image": True, **rest}
    return demand(slots, count, experiment, image=image, **given)


def images(run: NodesDriver) -> list[str]:
    return [node.own_image for node in run.pool.in_order()]


def hindrances(run: NodesDriver) -> list[tuple[int, str]]:
    return [(item.gangs_coming, item.hindrance) for item in standings(run.state, run.pool, run.now_us)]


def test_a_node_is_requested_in_each_image_that_waits_and_in_none_for_the_others() -> None:
    run = driver()
    decided = run.want(wants(ONE), wants(TWO, experiment=2), demand(1, experiment=3))
    assert [data.image for data in decided if isinstance(data, NodeRequested)] == [ONE, TWO, ""]
    assert images(run) == [ONE, TWO, ""]
    assert [environment_of(run.node(number)).get("TENUTO_AGENT_IMAGE") for number in (1, 2, 3)] == [ONE, TWO, None]
    assert all("TENUTO_DOCKER_PULL_IMAGE" not in environment_of(run.node(number)) for number in (1, 2, 3))
    assert run.want(wants(ONE, count=2), wants(TWO, experiment=2), demand(3, experiment=3)) == [], "they share such nodes"


def test_a_node_in_one_image_counts_for_no_gang_of_another_when_it_has_joined() -> None:
    run = driver(idle_seconds=300)
    run.want(wants(ONE))
    run.look((1,))
    run.join(1, image=ONE)
    assert requested(run.want(wants(TWO, experiment=2))) == ["four"]
    assert images(run) == [ONE, TWO]
    run.pass_time(301)
    assert run.phases()[1] == "released", "idle, and of no use for what waits"


def test_what_one_image_offers_is_expected_of_no_other() -> None:
    """An image that hides the GPUs would else be the end of all others."""
    run = driver()
    run.want(wants(ONE))
    run.look((1,))
    run.join(1, slots=1, image=ONE)
    assert requested(run.want(wants(TWO, slots=4, experiment=2), demand(4, experiment=3))) == ["four", "four"]
    assert hindrances(run) == [(1, ""), (1, "")]


def test_an_image_that_is_not_allowed_gets_no_node_and_says_so() -> None:
    run = driver()
    assert requested(run.want(wants(OTHER), wants(ONE, experiment=2))) == ["four"]
    assert hindrances(run) == [(0, "image"), (1, "")]


def test_what_needs_a_container_of_its_own_gets_no_node_and_says_so() -> None:
    run = driver()
    assert requested(run.want(wants(ONE, node_image=False), wants("", node_image=False, experiment=2))) == []
    assert hindrances(run) == [(0, "image"), (0, "image")]


def test_a_gang_beyond_the_limits_is_not_said_to_fail_for_its_image() -> None:
    run = driver(nodes_max=1)
    assert requested(run.want(wants(ONE, slots=8))) == []
    assert hindrances(run) == [(0, "never")]


def test_an_image_that_cannot_be_had_does_not_stand_in_the_way_of_another() -> None:
    run = driver(join_seconds=60)
    run.want(wants(ONE))
    run.look((1,))
    assert failed(run.pass_time(61)) == {1: "not_joined"}
    assert list(run.pool.backoffs) == [f"four {ONE}"]
    assert requested(run.want(wants(ONE), wants(TWO, experiment=2), demand(1, experiment=3))) == ["four", "four"]
    assert hindrances(run) == [(0, "later"), (1, ""), (1, "")]
    assert requested(run.pass_time(31)) == ["four"], "it is tried again after its pause"
    run.want(wants(TWO, experiment=2))
    assert not run.pool.backoffs, "what nobody waits for is not kept"


def test_a_node_whose_image_cannot_be_pulled_is_given_up_at_once_with_the_words() -> None:
    run = driver()
    run.want(wants(ONE), demand(1, experiment=2))
    run.look((1, 2))
    decided = run.look((2,), no_image=(1,))
    assert failed(decided) == {1: "refused"}
    [data] = [item for item in decided if isinstance(item, NodeFailed)]
    assert data.message == "ErrImagePull"
    told = sentence("NodeFailed", {"reason": data.reason.model_dump()}, "launcher/5")
    assert told == f"The image {ONE}, which the trial names, cannot be pulled where the node is; it is tried again in 30 s."
    assert failed(run.look(no_image=(2,))) == {}, "the pool's own image has the time to join"


def test_an_agent_that_has_joined_is_not_given_up_for_its_image() -> None:
    run = driver()
    run.want(wants(ONE))
    run.look((1,))
    run.join(1, image=ONE)
    assert failed(run.look(no_image=(1,))) == {}


@pytest.mark.parametrize("kind", ["capacity", "quota"])
def test_a_type_that_cannot_be_had_is_asked_for_in_no_image(kind: str) -> None:
    run = driver()
    run.want(wants(ONE))
    assert failed(run.look(failures=[(1, kind)])) == {1: kind}
    assert list(run.pool.backoffs) == ["four"]
    assert requested(run.want(wants(ONE), wants(TWO, experiment=2))) == []


def test_a_node_that_was_of_use_ends_the_pauses_of_its_image_and_type() -> None:
    run = driver(join_seconds=60)
    run.want(wants(ONE))
    run.look((1,))
    run.pass_time(61)
    run.pass_time(31)
    run.look((2,))
    run.join(2, image=ONE)
    run.grant(2)
    assert not run.pool.backoffs


def test_kept_nodes_run_in_no_image() -> None:
    run = driver(nodes_min=2)
    run.pass_time(1)
    assert images(run) == ["", ""]


def test_a_full_pool_makes_room_for_an_image_that_has_waited() -> None:
    run = driver(nodes_max=1, idle_seconds=60)
    run.want(demand(4))
    run.start(1)
    item = run.grant(1, slots=4)
    run.want(wants(ONE, experiment=2))
    assert hindrances(run) == [(0, "limits")]
    assert released(run.pass_time(61)) == {1: "makes_room"}
    run.leave(item, 1)
    run.look((1,))


def test_an_image_that_fails_again_and_again_stands_in_nobodys_way() -> None:
    """Good nodes would end at each of its tries, for a node that may never come. A registry that fails once is forgiven: while no
    room is made for it, a pool that stays full would never try it again."""
    run = driver(nodes_max=2, idle_seconds=60)
    run.want(demand(4), wants(ONE, experiment=2))
    run.look((1, 2))
    run.join(1)
    run.grant(1, slots=4)
    assert failed(run.look((1,), no_image=(2,))) == {2: "refused"}
    run.want(wants(ONE, experiment=2), demand(4, experiment=3))
    [key] = run.pool.backoffs
    for failures in range(1, DOUBTFUL_FAILURES + 1):
        pool = replace(run.pool, backoffs=run.pool.backoffs.set(key, NodeTypeBackoff(failures, 0)))
        pool = replace(pool, provisioning=pool.provisioning.model_copy(update={"nodes_max": 1}))
        blocked = pack(run.state, pool, run.now_us).blocked
        by_image = blocked is not None and blocked.demand.wanted.image == ONE
        assert by_image == (failures < DOUBTFUL_FAILURES), failures


def test_a_type_that_was_renamed_takes_no_node_away() -> None:
    run = driver(idle_seconds=60)
    run.want(wants(ONE))
    run.look((1,))
    run.join(1, image=ONE)
    run.grant(1)
    renamed = {**FOUR, "name": "four-b"}
    assert released(run.provision(provisioner="kubernetes", node_types=[renamed], idle_seconds=60)) == {}
    other = {**renamed, "node_images": ["example.org/other:*"]}
    assert released(run.provision(provisioner="kubernetes", node_types=[other], idle_seconds=60)) == {1: "image_not_allowed"}


def test_an_image_that_has_failed_takes_room_that_is_free() -> None:
    run = driver(nodes_max=1, idle_seconds=60)
    run.want(wants(ONE))
    run.look((1,))
    assert failed(run.look(no_image=(1,))) == {1: "refused"}
    run.look(())
    assert requested(run.pass_time(31)) == ["four"]


def test_nodes_in_images_are_none_of_those_that_the_pool_keeps() -> None:
    run = driver(nodes_min=1, nodes_max=2, idle_seconds=60)
    run.pass_time(1)
    run.start(1)
    run.want(wants(ONE))
    run.look((1, 2))
    run.join(2, image=ONE)
    run.leave(run.grant(2), 2)
    run.want()
    decided = run.pass_time(61)
    assert released(decided) == {2: "idle"}, "the general one is kept"
    [given_back] = decided
    said = sentence("NodeReleased", {"reason": given_back.model_dump()["reason"]}, "launcher/5")
    assert f"it runs in the image {ONE}, and such nodes are not among those that a pool keeps." in said


def test_a_node_in_an_image_that_is_coming_is_not_kept_either() -> None:
    run = driver(idle_seconds=60)
    run.want(wants(ONE))
    run.provision(provisioner="kubernetes", node_types=[FOUR], nodes_min=1, idle_seconds=60)
    run.want()
    assert images(run) == [ONE, ""]
    assert released(run.pass_time(61)) == {1: "not_needed"}


def test_the_pool_keeps_its_nodes_beside_those_in_images() -> None:
    run = driver(nodes_max=2)
    run.want(wants(ONE))
    run.look((1,))
    run.join(1, image=ONE)
    run.provision(provisioner="kubernetes", node_types=[FOUR], nodes_min=1, nodes_max=2)
    assert images(run) == [ONE, ""]


def test_nodes_in_an_image_that_is_taken_away_are_given_back_when_their_work_ends() -> None:
    run = driver(nodes_max=4)
    run.want(wants(ONE), wants(TWO, experiment=2), demand(4, experiment=3))
    run.look((1,))
    run.join(1, image=ONE)
    run.grant(1)
    decided = run.provision(provisioner="kubernetes", node_types=[{**FOUR, "node_images": ["elsewhere.org/*"]}], nodes_max=4)
    assert released(decided) == {1: "image_not_allowed", 2: "image_not_allowed"}
    assert not run.orders().start[0][0].image, "only the general one is started"
    assert all(data.drain for data in decided if isinstance(data, NodeReleased))


def test_a_type_runs_trials_in_containers_or_in_one_image_and_not_both() -> None:
    with pytest.raises(ValidationError, match="make two types of it"):
        NodeType(images=True, node_images=("torch:2",))
