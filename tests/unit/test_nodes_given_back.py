"""Nodes are given back when nothing needs them, given up when they do not serve, and forgotten when nothing of them is left."""

from __future__ import annotations

import pytest

from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.joining import AgentEnrolled, AgentRevoked
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeReleased, NodeStarted
from tenuto.schemas.sentences import sentence
from tenuto.services.launcher.commands import LookAtNodes, SeenNode
from tenuto.services.launcher.policies.provisioning.nodes import provided, wanted_orders
from tests.support.nodes_driver import NodesDriver, demand, failed, released, requested

ONE = {"name": "one", "slots": 1}
TWO = {"name": "two", "slots": 2}


def served(count: int = 1, **settings: object) -> NodesDriver:
    """So many nodes with one slot, in service and used before."""
    run = NodesDriver(**{"node_types": [ONE], **settings})
    run.want(demand(count=count))
    run.start(*range(1, count + 1))
    for number in range(1, count + 1):
        run.leave(run.grant(number), number)
    run.want()
    return run


def running(*numbers: int) -> tuple[SeenNode, ...]:
    return tuple(SeenNode(f"gpus-{number}", f"i-{number}", "running") for number in numbers)


def stopped(run: NodesDriver, real: tuple[SeenNode, ...]) -> list[str]:
    return [node.provider_id for node in run.orders(real).stop]


def test_an_idle_node_is_given_back_stopped_and_forgotten() -> None:
    run = served()
    assert released(run.pass_time(299)) == {}
    assert released(run.pass_time(1)) == {1: "idle"}
    assert not run.pool.backoffs, "it was of use"
    assert stopped(run, running(1)) == [], "the scheduler may have granted slots there a moment ago"
    run.seconds += 5
    assert stopped(run, running(1)) == ["i-1"]
    assert run.look((1,)) == []
    assert run.look() == [], "its agent is still in service: the scheduler must hear first that it is gone"
    lost = run.lose(1)
    assert [type(data) for data in lost] == [AgentLost]
    assert [type(data) for data in run.look()] == [NodeEnded]
    assert run.phases() == {}
    assert run.look(ended=(1,)) == []


def test_a_node_with_another_installation_makes_way_when_nothing_runs_on_it_also_within_the_minimum() -> None:
    run = served(count=2, nodes_min=2)
    item = run.grant(2)
    seen = tuple(SeenNode(f"gpus-{number}", f"i-{number}", "running", "", True) for number in (1, 2))
    decided = run.command(LookAtNodes, "gpus", run.pool.generation, seen, ())
    assert released(decided) == {1: "outdated"}
    assert requested(decided) == ["one"], "the minimum is kept by a new one"
    assert run.command(LookAtNodes, "gpus", run.pool.generation, seen, ()) == []
    run.leave(item, 2)
    assert released(run.command(LookAtNodes, "gpus", run.pool.generation, seen, ())) == {2: "outdated"}


def test_work_ends_idleness_and_a_released_node_is_never_used_again() -> None:
    run = served()
    run.pass_time(299)
    item = run.grant(1)
    assert released(run.pass_time(1_000)) == {}
    run.leave(item, 1)
    assert released(run.pass_time(299)) == {}
    assert released(run.pass_time(1)) == {1: "idle"}
    assert requested(run.want(demand())) == ["one"]
    assert run.phases() == {1: "released", 2: "requested"}


def test_a_node_that_drains_is_stopped_when_nothing_runs_on_it() -> None:
    run = served()
    item = run.grant(1)
    assert released(run.release(1)) == {1: "requested"}
    assert stopped(run, running(1)) == []
    run.seconds += 1e6
    assert stopped(run, running(1)) == []
    assert run.release(1) == []
    [again] = run.release(1, drain=False)  # now, after all
    assert isinstance(again, NodeReleased)
    assert not again.drain
    assert stopped(run, running(1)) == []
    run.leave(item, 1)
    run.seconds += 5
    assert stopped(run, running(1)) == ["i-1"]


def test_one_given_back_now_does_not_wait_for_workers_that_do_not_leave() -> None:
    run = served()
    run.grant(1)
    run.release(1, drain=False)
    run.seconds += 599
    assert stopped(run, running(1)) == []
    run.seconds += 1
    assert stopped(run, running(1)) == ["i-1"]


def test_a_node_is_kept_while_something_that_fits_it_has_just_begun_to_wait() -> None:
    run = served()
    run.pass_time(250)
    run.want(demand(locality="agent"))
    assert released(run.pass_time(60)) == {}
    assert released(run.pass_time(200)) == {}
    # For so long both were there and did not come together: the node may be in the way of a better one.
    assert released(run.pass_time(60)) == {1: "idle"}


def test_a_node_that_was_of_no_use_is_not_asked_for_again_at_once() -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand())
    run.start(1)
    run.want()
    decided = run.pass_time(300)
    assert released(decided) == {1: "idle"}
    assert run.pool.backoffs["one"].until_us == run.now_us + 30_000_000
    assert requested(run.want(demand())) == []
    assert requested(run.pass_time(30)) == ["one"]


def test_a_node_that_comes_for_nobody_is_given_back_before_it_came() -> None:
    run = NodesDriver(node_types=[ONE], nodes_min=1)
    run.want(demand(count=3))
    run.look((1,), pending=(2, 3))
    run.want(demand())
    assert released(run.pass_time(299)) == {}
    assert released(run.pass_time(1)) == {3: "not_needed", 2: "not_needed"}


def test_the_others_of_a_group_that_failed_are_given_back_unless_something_needs_them() -> None:
    run = NodesDriver(node_types=[TWO])
    run.want(demand(6))
    decided = run.look((1,), pending=(2,), failures=[(3, "capacity")])
    assert released(decided) == {1: "group_failed", 2: "group_failed"}
    run = NodesDriver(node_types=[TWO], nodes_max=3)
    run.want(demand(6))
    run.want(demand(6), demand(2, experiment=2))
    decided = run.look((1,), pending=(2,), failures=[(3, "capacity")])
    assert released(decided) == {2: "group_failed"}


def test_an_agent_that_does_not_come_makes_a_node_fail_but_the_queue_of_the_provider_does_not() -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand())
    run.look(pending=(1,))
    assert run.pass_time(1e5) == []
    [started] = run.look((1,))
    assert isinstance(started, NodeStarted)
    assert started.provider_id == "i-1"
    assert run.pass_time(599) == []
    decided = run.pass_time(1)
    assert failed(decided) == {1: "not_joined"}
    assert requested(decided) == []
    assert stopped(run, running(1)) == ["i-1"]
    assert run.join(1) == [], "a node that failed does not come back"


@pytest.mark.parametrize("joined", [False, True])
def test_a_node_that_ends_by_itself_has_failed(joined: bool) -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand())
    run.look((1,))
    if joined:
        run.join(1)
    decided = run.look(ended=(1,))
    assert failed(decided) == {1: "lost"}
    [data] = [item for item in decided if isinstance(item, NodeFailed)]
    assert (data.message, data.retry_at_us is None) == ("out of memory", joined)


def test_a_job_that_ends_in_the_queue_is_refused() -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand())
    assert failed(run.look(ended=(1,))) == {1: "refused"}


def test_what_is_missing_from_one_answer_is_lost_only_if_its_agent_is_not_in_service() -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand(count=2))
    run.look((1, 2))
    run.join(1)
    assert failed(run.look()) == {2: "lost"}
    assert failed(run.lose(1)) == {1: "lost"}


def test_an_answer_that_did_not_come_tells_nothing() -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand())
    run.look((1,))
    assert run.command(LookAtNodes, "gpus", 1, None, ()) == []
    assert run.command(LookAtNodes, "unknown", 1, (), ()) == []


def test_an_agent_that_says_that_it_ends_gives_its_node_back() -> None:
    run = served()
    decided = run.join(1, gone=True)
    assert released(decided) == {1: "agent_left"}
    assert [type(data) for data in run.look(ended=(1,))] == [NodeEnded]


@pytest.mark.parametrize("first", ["node", "lease"])
def test_a_node_whose_agent_announced_its_end_and_had_no_work_left_is_given_back_though_its_last_word_is_lost(first: str) -> None:
    run = served()
    run.join(1, leaving="now")
    assert released(run.look(ended=(1,)) if first == "node" else run.lose(1)) == {1: "agent_left"}
    if first == "node":
        [lost] = run.join(1, gone=True)
        assert isinstance(lost, AgentLost)
        assert lost.announced, "an agent whose node is released may still say that it is gone"
    assert [type(data) for data in run.look(ended=(1,))] == [NodeEnded]


def test_a_notice_of_the_provider_is_the_reason_on_record() -> None:
    run = served(2)
    run.join(2, leaving="now", notice="the instance was preempted")
    [data] = [data for data in run.join(2, gone=True) if isinstance(data, NodeReleased)]
    assert "its provider gave notice (the instance was preempted), after" in said(NodeReleased.TYPE, data)
    run.grant(1)
    run.join(1, leaving="now", notice="the instance was preempted")
    [lost] = [data for data in run.look(ended=(1,)) if isinstance(data, NodeFailed)]
    assert "its provider had given notice (the instance was preempted)." in said(NodeFailed.TYPE, lost)


def said(about: str, data: EventData) -> str:
    return sentence(about, data.model_dump(mode="json"), "service:launcher/1")


def test_lowered_limits_give_back_what_loses_least() -> None:
    run = served(4)
    run.grant(1)
    run.grant(4)
    decided = run.provision(node_types=[ONE], nodes_max=2)
    assert released(decided) == {3: "over_limit", 2: "over_limit"}
    run = served(3, node_types=[{**ONE, "cost_per_hour": 2.0}])
    assert released(run.provision(node_types=[{**ONE, "cost_per_hour": 2.0}], cost_per_hour_max=4.5)) == {3: "over_limit"}


def test_nodes_that_cannot_serve_the_next_gang_make_room_for_it() -> None:
    small, large = {**ONE, "device": "T4"}, {"name": "large", "slots": 8, "device": "H100"}
    run = served(2, node_types=[small, large], nodes_max=2)
    run.grant(1)
    run.grant(2)
    assert requested(run.want(demand(8, device="h100"), demand(1, experiment=2))) == []
    assert released(run.pass_time(299)) == {}
    decided = run.pass_time(1)
    assert released(decided) == {2: "makes_room"}
    assert released(run.pass_time(100)) == {}, "one leaves already"
    run.lose(2)
    assert requested(run.look((1,))) == ["large"]


def test_kept_nodes_make_room_and_are_not_requested_again_meanwhile() -> None:
    kept, large = {**ONE, "cost_per_hour": 1.0}, {"name": "large", "slots": 8, "cost_per_hour": 3.0}
    run = NodesDriver(node_types=[kept, large], nodes_min=2, cost_per_hour_max=4.0)
    run.pass_time(0)
    run.start(1, 2)
    run.want(demand(8, locality="agent"))
    decided = run.pass_time(300)
    assert (released(decided), requested(decided)) == ({2: "makes_room"}, [])
    assert run.pass_time(10) == []
    run.lose(2)
    assert requested(run.look((1,))) == ["large"], "it counts for the minimum, too"


def test_room_is_not_made_of_nodes_that_come_for_those_ahead() -> None:
    near, apart = {**ONE, "slots": 2, "device": "T4", "labels": ["rack=1"]}, {"name": "apart", "slots": 4, "device": "H100"}
    run = NodesDriver(node_types=[near, apart], nodes_max=3)
    asked = requested(run.want(demand(1, device="h100"), demand(5, locality="rack")))
    assert asked == ["apart"], "three more for the second would be too many"
    assert run.pass_time(700) == []
    assert run.pass_time(0) == []
    decided = run.want(demand(5, locality="rack"), demand(1, device="h100"))
    assert released(decided) == {1: "makes_room"}, "nobody ahead counts on it now"


def test_nodes_of_another_provisioner_are_given_back_and_found_until_they_end() -> None:
    run = served()
    decided = run.provision(provisioner="static")
    assert released(decided) == {1: "provisioner_changed"}
    assert [(item.generation, item.nodes, item.current) for item in provided(run.state)] == [(1, 1, False)]
    run.lose(1)
    assert [type(data) for data in run.look(generation=1)] == [NodeEnded]
    assert [(item.generation, item.nodes) for item in provided(run.state)] == [(1, 0)]
    assert requested(run.want(demand())) == []
    stray = running(1)
    assert wanted_orders(run.state, "gpus", 1, stray, run.now_us).stop == stray
    assert requested(run.provision(node_types=[ONE])) == ["one"]
    assert [(item.generation, item.current) for item in provided(run.state)] == [(1, False), (3, True)]
    assert run.look(generation=1) == [], "nodes of another provisioner are not judged"


def test_other_settings_of_the_same_provisioner_leave_nodes_as_they_are() -> None:
    run = served()
    assert released(run.provision(node_types=[ONE], settings={"partition": "b"})) == {}
    assert released(run.pass_time(300)) == {1: "idle"}


def test_orders_start_what_is_missing_and_stop_what_nobody_asked_for() -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand(3), demand(1, experiment=2))
    real = (
        SeenNode("gpus-2", "b", "pending"), SeenNode("gpus-2", "a", "running"), SeenNode("gpus-2", "c", "ended"),
        SeenNode("gpus-99", "x", "running"), SeenNode("gpus-98", "y", "ended"), SeenNode("gpus-3", "d", "ended"),
    )  # fmt: skip
    orders = run.orders(real)
    assert [[node.node_id for node in group] for group in orders.start] == [["gpus-1"], ["gpus-4"]]
    assert sorted(node.provider_id for node in orders.stop) == ["b", "x"]
    run.command(LookAtNodes, "gpus", 1, real, ())
    # The one that is on record stays, whatever comes beside it.
    more = run.orders((SeenNode("gpus-2", "0", "running"), *real)).stop
    assert [node.provider_id for node in more] == ["0", "x", "b"]
    assert wanted_orders(run.state, "unknown", 1, real[:1], 0).stop == real[:1]


def test_what_is_known_of_agents_ends_with_their_nodes() -> None:
    run = NodesDriver(node_types=[ONE])
    run.want(demand())
    enrolled = AgentEnrolled.model_validate(
        {"agent_id": "gpus-1", "pool": "gpus", "token_id": "jt-0123456789ab", "credential_hash": "0" * 64}
    )
    run.event(enrolled)
    run.start(1)
    run.release(1)
    run.lose(1)
    run.look()
    assert "gpus-1" not in run.pool.nodes
    assert not run.state.members
    run.event(AgentRevoked.model_validate({"agent_id": "gpus-1"}))
    run.event(enrolled)
    assert not run.state.members
