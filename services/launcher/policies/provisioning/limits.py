"""Limits of requests for nodes: number and cost in a pool, cost by workspace, and the pause of a type that failed. Pure.

A node counts in full for the workspace for whose gang it was requested, until it ends: so all nodes together cost no more than
the limits together, whichever workspaces the scheduler lets use them. For another workspace that uses it, its part of the slots
counts, too: so a workspace that uses the nodes of others gets fewer of its own. And while a node is coming, only gangs of that
workspace count on it: else one whose limit is reached would wait for the node of another, which would ask for a second one, and
so on.
"""

from __future__ import annotations

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool, backoff_key

COST_TOLERANCE = 1e-9
"""Part of the limit by which a sum of costs may be above it, because sums of prices are not exact."""
EVERY_OTHER = "*"
"""Name that stands for each workspace that is not named."""
BACKOFF_SECONDS = 30.0
"""Pause after the first failure in a row: about two looks, so a short shortage costs little."""
REFUSED_BACKOFF_SECONDS = 300.0
"""Pause after the first failure if the provider rejects the request: only a person can mend that, and changed settings end the
wait at once."""
BACKOFF_SECONDS_MAX = 1_800.0
"""Longest pause: capacity that comes back is noticed within half an hour, and a provider without any gets two orders an hour."""
_DOUBLINGS_MAX = 20
"""Most doublings that are computed: the bound above is reached long before."""


def within(cost: float, limit: float | None) -> bool:
    """True if the cost is not above the limit. None: no limit."""
    return limit is None or cost <= limit * (1 + COST_TOLERANCE)


class RemainingLimits:
    """Remainder of the pool's limits, counted down while nodes are requested."""

    def __init__(self, pool: ProvisionedPool) -> None:
        settings = pool.provisioning
        self.nodes_max, self.cost_max = settings.nodes_max, settings.cost_per_hour_max
        self.nodes = len(pool.nodes)
        self.cost = sum([node.cost_per_hour for node in pool.in_order()])

    def allow(self, count: int, cost_each: float) -> bool:
        return self._within(self.nodes + count, self.cost + count * cost_each)

    def could_allow(self, count: int, cost_each: float) -> bool:
        """True if the pool could have so many such nodes and no others."""
        return self._within(count, count * cost_each)

    def _within(self, nodes: int, cost: float) -> bool:
        return nodes <= self.nodes_max and within(cost, self.cost_max)

    def take(self, count: int, cost_each: float) -> None:
        self.nodes += count
        self.cost += count * cost_each


class WorkspaceCosts:
    """Remaining cost of each workspace, counted down while nodes are requested, as in `RemainingLimits`."""

    def __init__(self, state: State, pool: ProvisionedPool) -> None:
        self._settings = pool.provisioning
        self._costs: dict[str, float] = {}
        for node in pool.in_order() if self._settings.workspace_cost_per_hour_max else ():
            for workspace, part in _payers(state, node).items():
                self._costs[workspace] = self._costs.get(workspace, 0.0) + part * node.cost_per_hour

    def cost(self, workspace: str) -> float:
        return self._costs.get(workspace, 0.0)

    def limit(self, workspace: str) -> float | None:
        """Most that its nodes may cost per hour. None: no limit."""
        limits = self._settings.workspace_cost_per_hour_max
        return limits.get(workspace, limits.get(EVERY_OTHER))

    def allow(self, workspace: str, cost: float) -> bool:
        return within(self.cost(workspace) + cost, self.limit(workspace))

    def could_allow(self, workspace: str, cost: float) -> bool:
        """True if the workspace could have nodes of this cost and no others."""
        return within(cost, self.limit(workspace))

    def take(self, workspace: str, cost: float) -> None:
        self._costs[workspace] = self.cost(workspace) + cost


def payer_of(settings: Provisioning, workspace: str) -> str:
    """Workspace that a node is on record for; empty where no limit counts them."""
    return workspace if settings.workspace_cost_per_hour_max else ""


def _payers(state: State, node: Node) -> dict[str, float]:
    """Workspaces that it counts for, with the part of its cost."""
    used: dict[str, int] = {}
    for allocation_id in state.on_agent.get(node.node_id, ()):
        allocation = state.allocations[allocation_id]
        experiment = state.experiments.get(allocation.experiment_id)
        # An experiment that has ended is forgotten a moment before its last workers have left.
        workspace = experiment.config.resources.workspace if experiment is not None else node.workspace
        slots = sum([len(part.slot_ids) for part in allocation.slots if part.agent_id == node.node_id])
        used[workspace] = used.get(workspace, 0) + max(1, slots)
    offered = max(node.slots, sum(used.values()))
    return {**{workspace: slots / offered for workspace, slots in used.items()}, node.workspace: 1.0}


def backoff_seconds(failures: int, *, refused: bool = False) -> float:
    """Pause after `failures` failures in a row: doubled with each, up to the bound."""
    first = REFUSED_BACKOFF_SECONDS if refused else BACKOFF_SECONDS
    return min(BACKOFF_SECONDS_MAX, first * 2.0 ** min(max(0, failures - 1), _DOUBLINGS_MAX))


def next_try(pool: ProvisionedPool, key: str, now_us: int, *, refused: bool = False) -> tuple[int, int]:
    """(failures in a row with this one, time of the next try). Nodes that fail while their type is not asked for belong to the
    attempt that failed already. `key`: see `backoff_key`."""
    before = pool.backoffs.get(key)
    if before is not None and before.until_us > now_us:
        return before.failures, before.until_us
    failures = (before.failures if before is not None else 0) + 1
    return failures, now_us + round(backoff_seconds(failures, refused=refused) * 1e6)


def retry_of(pool: ProvisionedPool, node_type: NodeType, image: str, now_us: int) -> int | None:
    """Time before which nodes of the type that run in the image as a whole are not asked for. None: they may be asked for now."""
    keys = {node_type.name, backoff_key(node_type, image)}
    found = max([pool.backoffs[key].until_us for key in sorted(keys) if key in pool.backoffs], default=0)
    return found if found > now_us else None
