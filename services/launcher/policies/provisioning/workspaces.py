"""Cost of a pool's nodes by workspace, and what the limits by workspace leave. Pure.

A node counts in full for the workspace for whose gang it was requested, until it ends: so all nodes together cost no more than
the limits together, whichever workspaces the scheduler lets use them. For another workspace that uses it, its part of the slots
counts, too: so a workspace that uses the nodes of others gets fewer of its own. And while a node is coming, only gangs of that
workspace count on it: else one whose limit is reached would wait for the node of another, which would ask for a second one, and
so on.
"""

from __future__ import annotations

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.policies.provisioning.costs import within
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool

EVERY_OTHER = "*"
"""Name that stands for each workspace that is not named."""


class WorkspaceCosts:
    """Remaining cost of each workspace, counted down while nodes are requested, as in `Limits`."""

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
