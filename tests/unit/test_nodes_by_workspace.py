"""What the nodes of a pool may cost per hour is limited by workspace, too."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tenuto.schemas.events.node import NodeRequested
from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.sentences import sentence
from tenuto.services.launcher.policies.provisioning.node_explanations import standings
from tenuto.services.launcher.policies.provisioning.workspaces import WorkspaceCosts
from tests.support.nodes_driver import NodesDriver, demand, requested

EIGHT = {"name": "eight", "slots": 8, "cost_per_hour": 8.0}
ONE = {"name": "one", "slots": 1, "cost_per_hour": 2.0}


def driver(limits: dict[str, float], *node_types: dict[str, Any], **settings: Any) -> NodesDriver:
    return NodesDriver(node_types=list(node_types or (EIGHT,)), workspace_cost_per_hour_max=limits, **settings)


def costs(run: NodesDriver, *workspaces: str) -> list[float]:
    found = WorkspaceCosts(run.state, run.pool)
    return [found.cost(name) for name in workspaces]


def test_a_workspace_gets_what_its_limit_allows_and_others_go_on() -> None:
    run = driver({"vision": 16.0, "*": 8.0})
    wants = [demand(8, count=3, workspace="vision"), demand(8, count=2, experiment=2, workspace="audio")]
    decided = run.want(*wants, demand(8, experiment=3, workspace="text"))
    nodes = [data for data in decided if isinstance(data, NodeRequested)]
    assert [node.workspace for node in nodes] == ["vision", "vision", "audio", "text"]
    assert costs(run, "vision", "audio", "text") == [16, 8, 8]
    assert run.pass_time(60) == []
    told = [(item.gangs_coming, item.hindrance) for item in standings(run.state, run.pool, run.now_us)]
    assert told == [(2, "workspace"), (1, "workspace"), (1, "")]


def test_its_decision_says_the_numbers() -> None:
    run = driver({"vision": 16.0})
    run.want(demand(8, workspace="vision"))
    [node] = [data for data in run.want(demand(8, count=2, workspace="vision")) if isinstance(data, NodeRequested)]
    assert (node.reason.numbers["workspace_cost_per_hour"], node.reason.numbers["workspace_cost_per_hour_max"]) == (8, 16)
    told = sentence("NodeRequested", node.model_dump(), "launcher/2")
    assert told.endswith("Those of workspace vision cost 8 an hour, and may cost 16.")


def test_without_limits_nothing_is_recorded_of_workspaces() -> None:
    [node] = driver({}).want(demand(8, workspace="vision"))
    assert isinstance(node, NodeRequested)
    assert "workspace" not in node.model_dump_json()


def test_a_large_gang_is_not_overtaken_by_small_ones_of_its_workspace() -> None:
    run = driver({"vision": 8.0}, ONE, EIGHT)
    small, large = demand(1, count=2, workspace="vision"), demand(8, experiment=2, locality="agent", workspace="vision")
    assert requested(run.want(small)) == ["one", "one"]
    assert requested(run.want(large, demand(1, count=3, experiment=3, workspace="vision"))) == []
    assert requested(run.want(large, demand(1, count=3, experiment=4, workspace="audio"))) == ["one"] * 3


def test_one_that_could_never_be_served_is_passed_over() -> None:
    run = driver({"vision": 4.0}, ONE, EIGHT)
    waiting = [demand(8, locality="agent", workspace="vision"), demand(1, count=2, experiment=2, workspace="vision")]
    assert requested(run.want(*waiting)) == ["one", "one"]
    assert [item.hindrance for item in standings(run.state, run.pool, run.now_us)] == ["never", ""]


def test_a_node_counts_for_whom_it_was_requested_and_for_others_who_use_it() -> None:
    """Experiment 9 of the driver is in workspace default."""
    run = driver({"*": 8.0})
    run.want(demand(8, workspace="vision"))
    run.start(1)
    run.want()
    assert costs(run, "vision", "default") == [8, 0]
    allocation = run.grant(1, slots=4)
    assert costs(run, "vision", "default") == [8, 4]
    assert requested(run.want(demand(8, experiment=5, workspace="default"))) == [], "it lives on another's node"
    run.leave(allocation, 1)
    assert costs(run, "vision", "default") == [8, 0]
    assert requested(run.pass_time(20)) == ["eight"]


def test_kept_nodes_count_for_nobody_until_they_are_used() -> None:
    run = driver({"*": 8.0}, nodes_min=1)
    run.pass_time(1)
    assert [node.workspace for node in run.pool.in_order()] == [""]
    assert requested(run.want(demand(16, workspace="vision"))) == [], "two nodes are more than it may have"
    assert requested(run.want(demand(8, count=2, workspace="vision"))) == ["eight"]


@pytest.mark.parametrize("limits", [{"no such/name": 1.0}, {"vision": -1.0}, {"vision": float("inf")}, {"**": 1.0}])
def test_limits_that_are_none(limits: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Provisioning(workspace_cost_per_hour_max=limits)
