"""Nodes that come for a waiting experiment, and why no more come: for people who ask. Pure; decides nothing."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tenuto.schemas.events.pool import CapacityDemand
from tenuto.services.launcher.policies.provisioning.offers import nodes_for, of_type
from tenuto.services.launcher.policies.provisioning.requests import Limits, Packing, pack
from tenuto.services.launcher.policies.provisioning.workspaces import WorkspaceCosts
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import ProvisionedPool

Hindrance = Literal["", "never", "limits", "workspace", "later"]
"""never: no number of nodes within the limits serves it. limits: so many other nodes exist, or a gang before it waits for some to
end. workspace: the same of nodes and gangs of its workspace. later: nodes of the types that serve it could not be had just now.
Empty: nothing hinders it."""


class Standing(NamedTuple):
    demand: CapacityDemand
    gangs_coming: int
    """Gangs with slots on nodes that come or are being requested."""
    hindrance: Hindrance
    """Reason why nothing comes for the other gangs."""
    retry_at_us: int | None
    """later: time at which the first of the types is asked for again."""


def standings(state: State, pool: ProvisionedPool, now_us: int) -> tuple[Standing, ...]:
    """One for each demand, in the queue's order."""
    packing = pack(state, pool, now_us)
    unserved, costs = packing.unserved, WorkspaceCosts(state, pool)
    found = []
    for place, demand in enumerate(pool.demands):
        missing = unserved.get(place, 0)
        hindrance, retry_at_us = _hindrance(pool, packing, costs, demand.wanted, now_us) if missing else ("", None)
        found.append(Standing(demand.wanted, demand.wanted.count - missing, hindrance, retry_at_us))
    return tuple(found)


def _hindrance(
    pool: ProvisionedPool, packing: Packing, costs: WorkspaceCosts, wanted: CapacityDemand, now_us: int
) -> tuple[Hindrance, int | None]:
    settings, limits = pool.provisioning, Limits(pool)
    waits: list[int] = []
    able = 0
    for node_type in settings.node_types if settings.starts_nodes else ():
        whole = nodes_for(of_type(pool, node_type, now_us), wanted)
        if not whole or not limits.could_allow(whole, node_type.cost_per_hour):
            continue
        if not costs.could_allow(wanted.workspace, whole * node_type.cost_per_hour):
            continue
        able += 1
        backoff = pool.backoffs.get(node_type.name)
        if backoff is not None and backoff.until_us > now_us:
            waits.append(backoff.until_us)
    if not able:
        return "never", None
    if len(waits) == able:
        return "later", min(waits)
    return ("workspace" if wanted.workspace in packing.full else "limits"), None
