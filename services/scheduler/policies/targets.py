"""Each experiment's fair share of a pool, from the tree workspace > user > experiment.

A pass needs all shares, and one event changes few of them. So what was found last is remembered beside what it was found from: of
each user, the experiments as they stood, their demand, and the division of the user's share among them. What did not change is
known by identity (`Pool.groups`), so what is remembered is only ever what would be found again. It is kept in the pool's memo,
which is no part of the state: without it every result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_

from tenuto.services.scheduler.policies.feasibility import Reach, coming, reach_of, restricted
from tenuto.services.scheduler.policies.rounding import Loser, Remainder
from tenuto.services.scheduler.policies.shares import ShareNode, divide, rounded
from tenuto.services.scheduler.state import Experiment, Members, Pool, Share, State, policy_of
from tenuto.services.scheduler.state.giving_way import slots_kept
from tenuto.services.scheduler.state.usage import at_last_step, factor

NO_SHARE = Share()
REMEMBERED_MAX = 200_000
"""Experiments of one pool; beyond it all is forgotten and found anew."""

Owner = tuple[str, str]
"""(workspace, user)."""


@dataclass(slots=True)
class _UserGroup:
    """One user's experiments in one workspace."""

    members: Members
    capacity: int
    """Capacity of the pool for which the leaves were made."""
    largest: int
    """Slots of its largest gang."""
    agents: tuple[str, ...] | None
    """Agents of the pool for which the leaves were made; None if the leaves may go to all of them."""
    quota: int | None
    """Slots that its owner may use in all pools, for which the leaves were made."""
    leaves: list[ShareNode]
    """Leaves of the experiments that hold or want slots, in the order of their ids."""
    demand: float
    least: float
    known: dict[int, tuple[Experiment, int, ShareNode]]
    """Inputs from which each leaf was made."""
    share: float = -1.0
    """Share for which `targets` and `losers` were found."""
    targets: dict[int, int] = field(default_factory=dict)
    given: int = 0
    losers: list[Loser] = field(default_factory=list)


@dataclass(slots=True)
class RememberedTargets:
    """Last results for one pool."""

    groups: dict[Owner, _UserGroup] = field(default_factory=dict)
    remainder: Remainder = field(default_factory=Remainder)
    below: set[int] = field(default_factory=set)
    """Experiments that hold less than their shares."""
    above: set[int] = field(default_factory=set)
    """Experiments that hold more."""

    @property
    def targets(self) -> dict[int, int]:
        """Experiment -> slots of its fair share, in whole gangs."""
        return self.remainder.targets


def divided(state: State, pool: Pool, now_us: int) -> RememberedTargets:
    """The pool's slots, divided among its experiments. Good until the next call for this pool."""
    known = pool.memo.get(RememberedTargets)
    if known is None or len(known.targets) > REMEMBERED_MAX:
        known = pool.memo.keep(RememberedTargets())
    return divided_with(state, pool, now_us, known)


def divided_with(state: State, pool: Pool, now_us: int, known: RememberedTargets) -> RememberedTargets:
    """The same, with a given memory, which it changes; an empty one changes no result."""
    touched: set[int] = set()
    """Experiments whose target, or slots held, may be other ones than before."""
    groups = _groups(state, pool, known.groups, touched)
    nodes = {key: ShareNode(0, 1.0, group.demand, group.least) for key, group in groups.items() if group.leaves}
    divide(pool.capacity, _tree(state, pool, now_us, nodes))
    changed = [(groups[key], node.share) for key, node in nodes.items() if groups[key].share != node.share]
    outdated = [group for key, group in known.groups.items() if groups.get(key) is not group]
    gone = [(group.targets, group.losers) for group in (*outdated, *(group for group, _ in changed))]
    for group, share in changed:
        _divide_group(group, share)
    known.groups = groups
    known.remainder.change(gone, [(group.targets, group.losers) for group, _ in changed], touched)
    known.remainder.settle(pool.capacity - sum([group.given for group in groups.values()]), touched)
    _compare(known, pool, touched)
    return known


def _compare(known: RememberedTargets, pool: Pool, touched: set[int]) -> None:
    targets, held = known.targets, pool.held
    for key in sorted(touched):
        over = held.get(key, 0) - targets.get(key, 0)
        for side, inside in ((known.below, over < 0), (known.above, over > 0)):
            if inside:
                side.add(key)
            else:
                side.discard(key)


def _divide_group(group: _UserGroup, share: float) -> None:
    group.share = share
    divide(share, group.leaves)
    group.targets, group.given, group.losers = rounded(group.leaves)


def _groups(state: State, pool: Pool, old: dict[Owner, _UserGroup], touched: set[int]) -> dict[Owner, _UserGroup]:
    """The owners of experiments that are queued or hold slots, sorted. `touched`: gets those of the groups that changed."""
    found: dict[Owner, _UserGroup] = {}
    for owner in sorted(pool.groups):
        members, group = pool.groups[owner], old.get(owner)
        quota = _quota(state, owner)
        if group is None or group.members is not members or not _as_before(group, pool, quota):
            touched.update(group.known if group is not None else ())
            group = _group(state, pool, members, group, quota)
            touched.update(group.known)
        found[owner] = group
    for owner, group in old.items():
        if owner not in found:
            touched.update(group.known)
    return found


def _quota(state: State, owner: Owner) -> int | None:
    """Smaller one of the quotas of the workspace and the user."""
    if not state.shares:
        return None
    shares = [state.shares.get(name) for name in (f"workspace/{owner[0]}", f"user/{owner[1]}")]
    return min([share.max_slots for share in shares if share is not None and share.max_slots is not None], default=None)


def _as_before(group: _UserGroup, pool: Pool, quota: int | None) -> bool:
    """True if the leaves would be the same now: the capacity only counts where a gang is larger, the agents only where a gang
    may not go to all of them."""
    if quota != group.quota or (group.agents is not None and group.agents is not pool.agents):
        return False
    return group.capacity == pool.capacity or group.largest <= min(group.capacity, pool.capacity)


def _group(state: State, pool: Pool, members: Members, old: _UserGroup | None, quota: int | None) -> _UserGroup:
    known = old.known if old is not None and _as_before(old, pool, quota) else {}
    made: dict[int, tuple[Experiment, int, ShareNode]] = {}
    for key in sorted(members):
        experiment, held = members[key]
        last = known.get(key)
        same = last is not None and last[0] is experiment and last[1] == held and last[2].least == slots_kept(pool, experiment)
        # An elastic leaf also depends on the sizes of single allocations, which neither the experiment nor `held` shows.
        if last is not None and same and not experiment.elastic:
            made[key] = last
            continue
        leaf = _leaf(state, experiment, pool, quota)
        if last is not None:
            leaf.share = last[2].share
        made[key] = (experiment, held, last[2] if last is not None and leaf == last[2] else leaf)
    leaves = [leaf for _, _, leaf in made.values() if leaf.demand > 0]
    largest = max([experiment.slots_per_trial for experiment, _, _ in made.values()], default=0)
    agents = pool.agents if any(restricted(item[0]) for item in made.values()) else None
    if old is not None and len(old.leaves) == len(leaves) and all(map(is_, old.leaves, leaves)):
        # The same object stays, so that `divided_with`, which compares by identity, does not divide it anew.
        old.members, old.known, old.capacity, old.largest = members, made, pool.capacity, largest
        old.agents, old.quota = agents, quota
        return old
    demand, least = sum([leaf.demand for leaf in leaves]), sum([leaf.least for leaf in leaves])
    return _UserGroup(members, pool.capacity, largest, agents, quota, leaves, demand, least, made)


def _tree(state: State, pool: Pool, now_us: int, nodes: dict[tuple[str, str], ShareNode]) -> list[ShareNode]:
    """Workspaces with their users. `nodes`: the users, sorted."""
    users: dict[str, list[ShareNode]] = {}
    for (workspace, user), node in nodes.items():
        _own_share(state, node, f"user/{user}", f"{pool.name}/{workspace}/{user}")
        users.setdefault(workspace, []).append(node)
    top = []
    for workspace, children in users.items():
        _weigh_by_use(state, pool, now_us, children)
        demand, least = sum([child.demand for child in children]), sum([child.least for child in children])
        top.append(ShareNode(0, 1.0, demand, least, children))
        _own_share(state, top[-1], f"workspace/{workspace}", f"{pool.name}/{workspace}")
    _weigh_by_use(state, pool, now_us, top)
    return top


def _own_share(state: State, node: ShareNode, owner: str, name: str) -> None:
    share = state.shares.get(owner, NO_SHARE)
    node.weight, node.owner = share.weight, name
    if share.max_slots is not None:
        node.demand = max(node.least, min(node.demand, share.max_slots))


def _leaf(state: State, experiment: Experiment, pool: Pool, quota: int | None) -> ShareNode:
    """Leaf of an experiment: it wants its present slots, and the waiting gangs that the pool could ever hold."""
    if experiment.elastic:
        return _elastic_leaf(state, experiment, pool, quota)
    held = pool.held.get(experiment.experiment_id, 0)
    gang = experiment.slots_per_trial
    demand = held
    at_home = experiment.pool == pool.name
    if _may_want(experiment, pool, quota):
        demand += coming(state, pool, experiment) * gang
        if experiment.constraints is not None:
            demand = max(held, min(demand, _reach(state, experiment, pool).gangs * gang))
    if experiment.max_slots is not None:
        # What leaves for good still counts against the limit, so a share above it would be waited for in vain.
        most = experiment.max_slots // gang * gang
        demand = max(held, min(demand, most - (experiment.slots_used - held - len(experiment.returning) * gang)))
    least = slots_kept(pool, experiment)
    order = (experiment.place, experiment.experiment_id)
    return ShareNode(experiment.experiment_id, experiment.weight, demand if at_home else least, least, [], 0.0, gang, order=order)


def _may_want(experiment: Experiment, pool: Pool, quota: int | None) -> bool:
    """True if a trial of it that waits may have slots here."""
    gang = experiment.slots_per_trial
    return experiment.pool == pool.name and experiment.open and gang <= pool.capacity and (quota is None or gang <= quota)


def _reach(state: State, experiment: Experiment, pool: Pool) -> Reach:
    return reach_of(state, pool, experiment.constraints, experiment.slots_per_trial)


def _elastic_leaf(state: State, experiment: Experiment, pool: Pool, quota: int | None) -> ShareNode:
    """Leaf of an elastic experiment: its demand is the slots that all its trials could use."""
    held, gang = pool.held.get(experiment.experiment_id, 0), experiment.slots_per_trial
    at_home = experiment.pool == pool.name
    staying = [state.allocations[item] for item in experiment.allocations if item in pool.elastic]
    trials = len(staying) + (coming(state, pool, experiment) if _may_want(experiment, pool, quota) else 0)
    most = experiment.slots_most
    demand = trials * most
    if experiment.constraints is not None:
        reach = _reach(state, experiment, pool)
        most = min(most, max([reach.largest, *(item.size_soon for item in staying)]))
        demand = max(held, min(trials * most, reach.slots))
    if experiment.max_slots is not None:
        back = [state.allocations[experiment.trials[number].allocation_id] for number in experiment.returning]
        gone = experiment.slots_used - sum([item.size_kept for item in (*staying, *back)])
        demand = max(held, min(demand, experiment.max_slots - gone))
    least = slots_kept(pool, experiment)
    order = (experiment.place, experiment.experiment_id)
    node = ShareNode(experiment.experiment_id, experiment.weight, demand if at_home else least, least, [], 0.0, gang, order=order)
    node.trials, node.most = trials, most
    return node


def _weigh_by_use(state: State, pool: Pool, now_us: int, nodes: list[ShareNode]) -> None:
    half_life_us = policy_of(state, pool.name).half_life_us
    if not half_life_us or len(nodes) < 2:
        return
    used = [at_last_step(state.usage[node.owner], now_us, half_life_us) if node.owner in state.usage else 0 for node in nodes]
    total, weights = sum(used), sum(node.weight for node in nodes)
    if total:
        for node, amount in zip(nodes, used, strict=True):
            node.weight *= factor(amount / total, node.weight / weights)
