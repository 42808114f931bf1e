"""Any history of queues, answers of providers, agents and people keeps the promises about nodes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeReleased, NodeRequested, NodeStarted
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.sentences import sentence
from tenuto.services.launcher.commands import SeenNode
from tests.support.nodes_driver import NodesDriver, demand

TYPES = [
    {"name": "a", "slots": 2, "cost_per_hour": 1.0, "labels": ["rack=1"]},
    {"name": "b", "slots": 4, "cost_per_hour": 3.0, "device": "H100"},
]
demands = st.lists(
    st.builds(
        demand,
        st.sampled_from([0, 1, 2, 3, 5, 9]),
        st.integers(1, 4),
        st.integers(1, 3),
        locality=st.sampled_from(["any", "any", "agent", "rack"]),
        device=st.sampled_from(["", "", "h100"]),
        workspace=st.sampled_from(["default", "vision"]),
    ),
    max_size=4,
)
limits = st.fixed_dictionaries(
    {
        "nodes_min": st.integers(0, 2), "nodes_max": st.integers(2, 8), "node_types": st.just(TYPES),
        "cost_per_hour_max": st.sampled_from([None, 4.0, 9.0]),
        "workspace_cost_per_hour_max": st.sampled_from([{}, {}, {"vision": 3.0}, {"vision": 6.0, "*": 2.0}]),
        "provisioner": st.sampled_from(["slurm", "slurm", "slurm", "kubernetes", "static"]),
    }
)  # fmt: skip
steps = st.one_of(
    st.tuples(st.just("want"), demands),
    st.tuples(st.just("look"), st.integers(0, 2**16)),
    st.tuples(st.just("join"), st.integers(0, 20)),
    st.tuples(st.just("work"), st.integers(0, 20)),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("lose"), st.integers(0, 20)),
    st.tuples(st.just("release"), st.integers(0, 20)),
    st.tuples(st.just("time"), st.sampled_from([1.0, 31.0, 200.0, 700.0])),
    st.tuples(st.just("settings"), limits),
)


class Story:
    def __init__(self, given: dict[str, Any]) -> None:
        self.run = NodesDriver(**{**given, "provisioner": "slurm"})
        self.judge(self.run.log and [event.data for event in self.run.log])
        self.work: list[tuple[str, int]] = []

    def step(self, kind: str, value: Any) -> None:
        run = self.run
        numbers = [node.number for node in run.pool.in_order()]
        number = numbers[value % len(numbers)] if numbers and isinstance(value, int) else 0
        if kind == "want":
            self.judge(run.want(*value))
        elif kind == "look":
            self.look(value)
        elif kind == "join" and number and run.node(number).phase in ("started", "released"):
            self.judge(run.join(number))
        elif kind == "work" and number and (name := f"gpus-{number}") in run.state.agents and name not in run.state.on_agent:
            self.work.append((run.grant(number), number))
        elif kind == "end" and self.work:
            allocation, number = self.work.pop(value % len(self.work))
            self.judge(run.leave(allocation, number))
        elif kind == "lose" and number:
            self.judge(run.lose(number))
        elif kind == "release" and number:
            self.judge(run.release(number, drain=bool(value % 2)))
        elif kind == "time":
            self.judge(run.pass_time(value))
        elif kind == "settings":
            self.judge(run.provision(**value))
        if kind in ("want", "look", "time", "settings"):
            # A gang that the limit of its workspace cannot hold counts on nodes that were requested behind it, a pass later.
            passes = 1 + run.pool.provisioning.nodes_max * bool(run.pool.provisioning.workspace_cost_per_hour_max)
            assert any(self.judge(run.pass_time(0)) for _ in range(passes)), "what was decided was not all that follows"

    def look(self, bits: int) -> None:
        """The provider has some of them, and some orders fail."""
        run = self.run
        running, pending, ended, failures = [], [], [], []
        for node in run.pool.in_order():
            if node.generation != run.pool.generation:
                continue
            fate, bits = bits % 8, bits // 2
            if node.phase == "requested" and fate < 2:
                failures.append((node.number, ("capacity", "refused")[fate]))
            else:
                (running if fate < 6 else pending if fate == 6 else ended).append(node.number)
        self.judge(run.look(running, pending=pending, ended=ended, failures=failures))
        real = [SeenNode(f"gpus-{number}", f"i-{number}", "running") for number in running]
        orders = run.orders(real)
        known = {item.node_id for item in real}
        assert not any(node.node_id in known for group in orders.start for node in group), "started twice"
        for item in orders.stop:
            node = run.pool.nodes.get(item.node_id)
            assert node is None or node.ending, "a node is stopped that is of use"

    def judge(self, decided: list[EventData]) -> bool:
        """After a decision. Its requests were within the limits, and of whole gangs. True if it decided nothing."""
        run, pool = self.run, self.run.pool
        new = [data for data in decided if isinstance(data, NodeRequested)]
        if new:
            cost = sum(node.cost_per_hour for node in pool.nodes.values())
            assert len(pool.nodes) <= pool.provisioning.nodes_max
            assert pool.provisioning.cost_per_hour_max is None or cost <= pool.provisioning.cost_per_hour_max + 1e-9
            assert pool.provisioning.provisioner != "static"
            for workspace in sorted({node.workspace for node in pool.nodes.values()} - {""}):
                caused = sum(node.cost_per_hour for node in pool.nodes.values() if node.workspace == workspace)
                most = pool.provisioning.workspace_cost_per_hour_max
                limit = most.get(workspace, most.get("*", caused))
                assert caused <= limit + 1e-9 or workspace not in {data.workspace for data in new}
        for data in new:
            numbers = data.reason.numbers
            if data.reason.rule == "demand":
                together = sum(item.slots for item in new if item.group == data.group)
                assert together + int(str(numbers["slots_coming"])) >= max(1, int(str(numbers["slots_wanted"])))
        for data in decided:
            if isinstance(data, NodeRequested | NodeFailed | NodeReleased):
                told = sentence(data.TYPE, data.model_dump(mode="json"), "launcher/2")
                assert "cannot put into words" not in told
                assert told.endswith(".")
        assert len(run.state.members) == 0
        return not decided


@settings(max_examples=150, deadline=None)
@given(limits, st.lists(steps, max_size=30))
def test_any_history_keeps_the_promises(given: dict[str, Any], history: list[tuple[str, Any]]) -> None:
    story = Story(given)
    for kind, value in history:
        story.step(kind, value)
    run = story.run
    verdict = verify_decisions(run.core, run.log)
    assert verdict.ok, verdict.divergences[0]
    assert run.core.dump(fold(run.core, run.log)) == run.core.dump(run.state)
    lives: dict[str, list[type]] = {}
    for event in run.log:
        if isinstance(event.data, NodeRequested | NodeStarted | NodeFailed | NodeReleased | NodeEnded):
            lives.setdefault(event.data.node_id, []).append(type(event.data))
    for life in lives.values():
        assert life.count(NodeRequested) == 1, "an id is used twice"
        assert life[0] is NodeRequested
        assert life.count(NodeStarted) <= 1
        assert life.count(NodeFailed) <= 1
        over = next((at for at, kind in enumerate(life) if kind in (NodeFailed, NodeReleased)), len(life))
        assert set(life[over + 1 :]) <= {NodeReleased, NodeEnded}, "a node is used that was given back"


@settings(max_examples=100, deadline=None)
@given(demands, st.integers(1, 12))
def test_what_is_wanted_and_can_be_had_is_on_its_way_at_once(wanted: list[CapacityDemand], nodes_max: int) -> None:
    """Every gang that the limits allow in its turn has its slots on nodes that come: the sums of a naive count."""
    run = NodesDriver(node_types=TYPES, nodes_max=nodes_max)
    run.want(*wanted)
    asked = run.pool.in_order()
    assert len(asked) <= nodes_max
    possible = [item for item in wanted if _nodes_of_one(item) and _nodes_of_one(item) <= nodes_max]
    if possible:
        assert asked
    slots = sum(node.slots for node in asked)
    if len(asked) < nodes_max - 8:  # no limit was near
        assert slots >= sum(max(1, item.slots) * item.count for item in possible)


def _nodes_of_one(item: CapacityDemand) -> int:
    """Nodes for one gang, of the type that needs least; 0: none serves it."""
    found = []
    for slots, device, rack in ((2, "", True), (4, "h100", False)):
        needed = -(-max(1, item.slots) // slots)
        unfit = bool(item.device and device and item.device not in device)
        if not unfit and (needed == 1 or item.locality == "any" or (item.locality == "rack" and rack)):
            found.append(needed)
    return min(found, default=0)
