"""Decisions about nodes follow from the log; where no pool has a provisioner, the launcher decides as before."""

from __future__ import annotations

import pytest

from tenuto.kernel.core import AnyCore
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.node import NodeRequested
from tenuto.schemas.events.pool import CapacityWanted
from tenuto.services.launcher.commands import TickNodes
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.scheduler.core import SchedulerCore
from tests.support import histories
from tests.support.nodes_driver import NodesDriver, demand


class _Third(LauncherCore):
    """These rules under the version before the last. Later ones are for nodes alone, the third was for restarts."""

    rule_version = 3


class _Fourth(LauncherCore):
    """These rules under the version before. The fifth is for nodes that run in an image as a whole, the fourth for all nodes."""

    rule_version = 4


class _Eighth(SchedulerCore):
    """These rules under the version before. The ninth is for agents that run in an image as a whole."""

    rule_version = 8


@pytest.mark.parametrize("core", [_Third(), _Fourth(), LauncherCore()], ids=["third", "fourth", "fifth"])
@pytest.mark.parametrize("name", [name for name in histories.names() if not name.startswith("nodes")])
def test_recorded_histories_without_provisioners_are_decided_as_they_were(name: str, core: LauncherCore) -> None:
    assert LauncherCore.rule_version == 5
    history = histories.read(name)
    verdict = verify_decisions(core, history)
    assert verdict.ok, verdict.divergences[0]
    state = fold(core, history)
    assert not state.pools
    assert core.decide(state, TickNodes(history[0].id, 10**18)) == []


@pytest.mark.parametrize("name", [name for name in histories.names() if name.endswith("-2026-11-29")])
def test_what_was_decided_before_agents_ran_in_images_is_decided_again(name: str) -> None:
    assert SchedulerCore.rule_version == 9
    verdict = verify_decisions(_Eighth(), histories.read(name))
    assert verdict.ok, verdict.divergences[0]


def test_nodes_in_images_of_a_recorded_history_are_requested_again() -> None:
    history = histories.read("nodes-2026-11-29-images")
    for core in (SchedulerCore(), LauncherCore()):
        verdict = verify_decisions(core, history)
        assert verdict.ok, verdict.divergences[0]
        assert verdict.decisions >= 10
    asked = [event.data for event in history if isinstance(event.data, NodeRequested) and event.data.pool == "pods"]
    assert {item.image for item in asked} >= {"example.com/one:1", "torch:2", ""}
    wanted = [item for event in history if isinstance(event.data, CapacityWanted) for item in event.data.demands]
    assert {item.image for item in wanted if item.node_image} >= {"example.com/one:1", "torch:2"}


@pytest.mark.parametrize("core", [_Eighth(), _Fourth()], ids=["scheduler", "launcher"])
def test_a_recorded_history_of_gangs_that_wait_for_nodes_is_decided_again(core: AnyCore) -> None:
    """What the scheduler wants and the launcher requests for it, by image."""
    history = histories.read("nodes-2026-11-29")
    verdict = verify_decisions(core, history)
    assert verdict.ok, verdict.divergences[0]
    assert verdict.decisions >= 10
    two = "example.com/two@sha256:" + "0" * 64
    wanted = [item for event in history if isinstance(event.data, CapacityWanted) for item in event.data.demands]
    assert {item.image for item in wanted} >= {"example.com/one:1", two, ""}
    asked = [event.data for event in history if isinstance(event.data, NodeRequested)]
    assert {item.image for item in asked} >= {"example.com/one:1", two}


def test_decisions_on_the_queue_and_on_peoples_words_are_made_again_from_the_log() -> None:
    run = NodesDriver(node_types=[{"slots": 2}, {"name": "b", "slots": 4}], nodes_max=6)
    run.want(demand(5), demand(2, count=3, experiment=2))
    run.look((1, 2), failures=[(3, "capacity")])
    run.want(demand(5), demand(2, count=4, experiment=2))
    run.join(1)
    item = run.grant(1)
    run.pass_time(700)
    run.release(1)
    run.want(demand(2, count=9))
    run.leave(item, 1)
    run.lose(1)
    run.provision(node_types=[{"slots": 2}], nodes_max=2)
    run.provision(provisioner="kubernetes", nodes_min=1)
    run.look((), generation=1)
    verdict = verify_decisions(run.core, run.log)
    assert verdict.ok, verdict.divergences[0]
    assert verdict.decisions >= 10
    assert run.core.dump(fold(run.core, run.log)) == run.core.dump(run.state)
    assert run.core.dump(run.core.load(run.core.dump(run.state))) == run.core.dump(run.state)
