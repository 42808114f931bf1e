"""Each experiment's fair share of a pool, from the tree workspace > user > experiment.

A pass needs all shares, and one event changes few of them. So what was found last is remembered beside what it was found from:
an experiment's demand with the experiment, a user's division among its experiments with their demands and the user's share. Both
are looked up by identity, so what is remembered is only ever what would be found again. It is a memory of the process and no
part of the state: without it every result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_

from tenuto.services.scheduler.policies.shares import LOST_FIRST, Loser, Node, divide, next_step, rounded
from tenuto.services.scheduler.policies.usage import at_last_step, factor
from tenuto.services.scheduler.state import Experiment, Pool, Share, State, policy_of

NO_SHARE = Share()
REMEMBERED_MAX = 200_000
"""Experiments of one pool; beyond it all is forgotten and found anew."""


@dataclass(slots=True)
class _Group:
    """One user's experiments in one workspace."""

    leaves: list[Node]
    demand: float
    least: float
    share: float = -1.0
    """That `targets` and `losers` were found for."""
    targets: dict[int, int] = field(default_factory=dict)
    given: int = 0
    losers: list[Loser] = field(default_factory=list)


@dataclass(slots=True)
class Remembered:
    """What was found last, of one pool."""

    leaves: dict[int, tuple[Experiment, int, int, Node]] = field(default_factory=dict)
    """Experiment -> (the experiment, slots held, the pool's capacity, its leaf)."""
    groups: dict[tuple[str, str], _Group] = field(default_factory=dict)


_REMEMBERED: dict[str, Remembered] = {}
"""By pool."""


def targets(state: State, pool: Pool, now_us: int) -> dict[int, int]:
    """Experiment -> slots of its fair share, in whole gangs."""
    known = _REMEMBERED.setdefault(pool.name, Remembered())
    if len(known.leaves) > REMEMBERED_MAX:
        known = _REMEMBERED[pool.name] = Remembered()
    return found_from(state, pool, now_us, known)


def found_from(state: State, pool: Pool, now_us: int, known: Remembered) -> dict[int, int]:
    """The same, with a given memory, which it changes; an empty one changes no result."""
    groups = _groups(state, pool, known)
    nodes = {key: Node(0, 1.0, groups[key].demand, groups[key].least) for key in sorted(groups)}
    divide(pool.capacity, _tree(state, pool, now_us, nodes))
    left, found = pool.capacity, dict[int, int]()
    for key, node in nodes.items():
        group = groups[key]
        if group.share != node.share:
            group.share = node.share
            divide(node.share, group.leaves)
            group.targets, group.given, group.losers = rounded(group.leaves)
        found.update(group.targets)
        left -= group.given
    if left > 0:
        losers = [loser for key in nodes for loser in groups[key].losers]
        _give_rest(found, left, sorted(losers, key=LOST_FIRST))
    return found


def _give_rest(found: dict[int, int], left: int, losers: Sequence[Loser]) -> None:
    """What rounding left over goes, a gang at a time, to those that lost most by it."""
    for loser in losers:
        step = next_step(loser.leaf, found[loser.leaf.key])
        if step <= left:
            found[loser.leaf.key] += step
            left -= step
        if left <= 0:
            return


def _groups(state: State, pool: Pool, known: Remembered) -> dict[tuple[str, str], _Group]:
    """(workspace, user) -> the experiments that hold or want slots, in the order of their ids."""
    held_slots, experiments, capacity = pool.held, state.experiments, pool.capacity
    members: dict[tuple[str, str], list[Node]] = {}
    for key in sorted({*held_slots, *(entry[2] for entry in pool.queue)}):
        experiment, held = experiments[key], held_slots.get(key, 0)
        last = known.leaves.get(key)
        if last is not None and last[0] is experiment and last[1] == held and last[2] == capacity:
            leaf = last[3]
        else:
            leaf = _leaf(state, experiment, pool)
            if not experiment.elastic:  # whose demand depends on its allocations, too
                known.leaves[key] = (experiment, held, capacity, leaf)
        if leaf.demand > 0:
            owner = (experiment.workspace, experiment.user)
            if owner in members:
                members[owner].append(leaf)
            else:
                members[owner] = [leaf]
    found = {}
    for owner, leaves in members.items():
        group = known.groups.get(owner)
        if group is None or len(group.leaves) != len(leaves) or not all(map(is_, group.leaves, leaves)):
            demand, least = sum([leaf.demand for leaf in leaves]), sum([leaf.least for leaf in leaves])
            group = known.groups[owner] = _Group(leaves, demand, least)
        found[owner] = group
    if len(known.groups) > 2 * len(found) + 64:
        known.groups = dict(found)
    return found


def _tree(state: State, pool: Pool, now_us: int, nodes: dict[tuple[str, str], Node]) -> list[Node]:
    """Workspaces with their users. `nodes`: the users, sorted."""
    users: dict[str, list[Node]] = {}
    for (workspace, user), node in nodes.items():
        _own_share(state, node, f"user/{user}", f"{pool.name}/{workspace}/{user}")
        users.setdefault(workspace, []).append(node)
    top = []
    for workspace, children in users.items():
        _weigh_by_use(state, pool, now_us, children)
        demand, least = sum([child.demand for child in children]), sum([child.least for child in children])
        top.append(Node(0, 1.0, demand, least, children))
        _own_share(state, top[-1], f"workspace/{workspace}", f"{pool.name}/{workspace}")
    _weigh_by_use(state, pool, now_us, top)
    return top


def _own_share(state: State, node: Node, owner: str, name: str) -> None:
    share = state.shares.get(owner, NO_SHARE)
    node.weight, node.owner = share.weight, name
    if share.max_slots is not None:
        node.demand = max(node.least, min(node.demand, share.max_slots))


def _leaf(state: State, experiment: Experiment, pool: Pool) -> Node:
    if experiment.elastic:
        return _elastic_leaf(state, experiment, pool)
    held = pool.held.get(experiment.experiment_id, 0)
    gang = experiment.slots_per_trial
    demand = held
    at_home = experiment.pool == pool.name
    if at_home and experiment.waiting and gang <= pool.capacity and experiment.queued:
        demand += len(experiment.waiting) * gang
    if experiment.max_slots is not None:
        # What leaves still counts against the limit, so a share above it would be waited for in vain.
        most = experiment.max_slots // gang * gang
        demand = max(held, min(demand, most - (experiment.slots_used - held)))
    least = 0 if experiment.preemptible else held
    order = (experiment.place, experiment.experiment_id)
    return Node(experiment.experiment_id, experiment.weight, demand if at_home else least, least, [], 0.0, gang, order=order)


def _elastic_leaf(state: State, experiment: Experiment, pool: Pool) -> Node:
    """Its demand is what all its trials could use."""
    held, gang = pool.held.get(experiment.experiment_id, 0), experiment.slots_per_trial
    at_home = experiment.pool == pool.name
    staying = [state.allocations[item] for item in experiment.allocations if item in pool.elastic]
    waits = at_home and experiment.queued and gang <= pool.capacity
    trials = len(staying) + (len(experiment.waiting) if waits else 0)
    demand = trials * experiment.slots_most
    if experiment.max_slots is not None:
        gone = experiment.slots_used - sum(item.size_kept for item in staying)
        demand = max(held, min(demand, experiment.max_slots - gone))
    least = 0 if experiment.preemptible else held
    order = (experiment.place, experiment.experiment_id)
    node = Node(experiment.experiment_id, experiment.weight, demand if at_home else least, least, [], 0.0, gang, order=order)
    node.trials, node.most = trials, experiment.slots_most
    return node


def _weigh_by_use(state: State, pool: Pool, now_us: int, nodes: list[Node]) -> None:
    half_life_us = policy_of(state, pool.name).half_life_us
    if not half_life_us or len(nodes) < 2:
        return
    used = [at_last_step(state.usage[node.owner], now_us, half_life_us) if node.owner in state.usage else 0 for node in nodes]
    total, weights = sum(used), sum(node.weight for node in nodes)
    if total:
        for node, amount in zip(nodes, used, strict=True):
            node.weight *= factor(amount / total, node.weight / weights)
