"""Changes of allocations that keep the indexes true: granted, resized, leaving, released; and the use of slots over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from immutables import Map

from tenuto.schemas.fast_replace import replaced
from tenuto.services.scheduler.state import Allocation, Experiment, Leaving, Pool, PoolPolicy, State, Usage, policy_of
from tenuto.services.scheduler.state.giving_way import gives_way
from tenuto.services.scheduler.state.indexes import (
    grouped,
    pool_of,
    put_pool,
    put_trial,
    set_experiment,
    use,
    use_auxiliary,
    victim,
    with_item,
    with_returning,
    without_item,
)
from tenuto.services.scheduler.state.slotsets import SlotSet
from tenuto.services.scheduler.state.usable import slots_coming_back
from tenuto.services.scheduler.state.usage import settle


def counted(state: State, pool: Pool, allocation: Allocation, sign: int) -> Pool:
    """The pool with the present allocation counted in (1) or out (-1)."""
    change: Callable[[Any, Any], Any] = with_item if sign > 0 else without_item
    experiment = state.experiments[allocation.experiment_id]
    item = allocation.allocation_id
    changes: dict[str, Any] = {}
    if experiment.auxiliary:
        running = pool.auxiliary.get(experiment.experiment_id, 0) + (0 if allocation.leaving else sign)
        return replaced(pool, auxiliary=_with_count(pool.auxiliary, experiment.experiment_id, running))
    if allocation.leaving:
        changes["leaving"] = change(pool.leaving, item)
        changes["coming"] = pool.coming + sign * slots_coming_back(state, pool, allocation)
    else:
        if gives_way(experiment, allocation):
            changes["victims"] = change(pool.victims, victim(experiment, allocation))
        if experiment.expected_us is not None:
            changes["ends"] = change(pool.ends, (allocation.granted_us + experiment.expected_us, item))
        if allocation.backfill_until_us is not None:
            changes["backfilled"] = change(pool.backfilled, (allocation.backfill_until_us, item))
    if allocation.leaving in ("", "resized"):
        held = pool.held.get(experiment.experiment_id, 0) + sign * allocation.size_soon
        changes["held"] = _with_count(pool.held, experiment.experiment_id, held)
        if allocation.stays:
            staying = pool.staying.get(experiment.experiment_id, 0) + sign * allocation.size_soon
            changes["staying"] = _with_count(pool.staying, experiment.experiment_id, staying)
        # Also where it holds as much as before: what an elastic experiment wants depends on its allocations.
        changes["groups"] = grouped(pool, experiment, held)
        if experiment.elastic:
            changes["elastic"] = change(pool.elastic, item)
    return replaced(pool, **changes)


def _with_count(counts: Map[int, int], key: int, count: int) -> Map[int, int]:
    if count:
        return counts.set(key, count)
    return counts.delete(key) if key in counts else counts


def _recounted(state: State, old: Allocation, new: Allocation) -> State:
    """State with the pools' counts of the allocation updated after a change."""
    pool = counted(state, pool_of(state, old.pool), old, -1)
    state = replaced(state, allocations=state.allocations.set(new.allocation_id, new))
    return with_returning(put_pool(state, counted(state, pool, new, 1)), new)


def own(state: State, experiment: Experiment, slots: int) -> State:
    """Count slots of its live allocations to its owners."""
    if not slots:
        return state
    owned = state.owner_slots
    for owner in experiment.owners:
        total = owned.get(owner, 0) + slots
        owned = owned.set(owner, total) if total else owned.delete(owner)
    return replaced(state, owner_slots=owned)


def add_allocation(state: State, allocation: Allocation, turn_until_us: int = 0) -> State:
    """Give the trial its slots."""
    experiment = state.experiments[allocation.experiment_id]
    state = replaced(state, allocations=state.allocations.set(allocation.allocation_id, allocation), grants=allocation.grant)
    take = use_auxiliary if experiment.auxiliary else use
    state = own(take(state, allocation.allocation_id, allocation.slots, with_item), experiment, allocation.size)
    state = put_pool(state, counted(state, pool_of(state, allocation.pool), allocation, 1))
    state = use_slots(state, experiment, allocation.pool, allocation.size, allocation.granted_us)
    experiment = replaced(
        experiment,
        allocations=with_item(experiment.allocations, allocation.allocation_id),
        slots_used=experiment.slots_used + allocation.size,
        reserved_us=0,
        turn_until_us=max(experiment.turn_until_us, turn_until_us),
    )
    trial = experiment.trials[allocation.trial_number]
    return put_trial(state, experiment, replace(trial, grants=trial.grants + 1, allocation_id=allocation.allocation_id))


def remove_allocation(state: State, allocation: Allocation, now_us: int) -> State:
    """Give the slots back to their agents."""
    pool = counted(state, pool_of(state, allocation.pool), allocation, -1)
    state = replaced(put_pool(state, pool), allocations=state.allocations.delete(allocation.allocation_id))
    experiment = state.experiments[allocation.experiment_id]
    item, kept = allocation.allocation_id, allocation.size_kept
    give_back = use_auxiliary if experiment.auxiliary else use
    state = use(give_back(state, item, allocation.slots, without_item), item, allocation.gained, without_item)
    state = use_slots(own(state, experiment, -kept), experiment, allocation.pool, -allocation.size, now_us)
    experiment = replaced(
        experiment,
        allocations=without_item(experiment.allocations, item),
        slots_used=experiment.slots_used - kept,
        idle_since_us=max(now_us, experiment.idle_since_us),
    )
    trial = experiment.trials[allocation.trial_number]
    return put_trial(state, experiment, replace(trial, allocation_id=""))


def mark_leaving(state: State, allocation: Allocation, leaving: Leaving, outcome: str = "") -> State:
    """Marks an allocation as leaving. If it is being resized and only exits, it keeps the slots with which its trial continues;
    otherwise they are given up."""
    if allocation.next and leaving != "exited":
        state = resize(state, allocation, ())
        allocation = state.allocations[allocation.allocation_id]
    return _recounted(state, allocation, replace(allocation, leaving=leaving, outcome=outcome or allocation.outcome))


def resize(state: State, allocation: Allocation, slots: SlotSet) -> State:
    """Marks an allocation for a resize: its workers leave, and its trial continues with `slots`. The new ones of these are
    reserved from now on."""
    changed = replace(allocation, leaving="resized", next=slots)
    item = allocation.allocation_id
    pool = counted(state, pool_of(state, allocation.pool), allocation, -1)
    state = replaced(put_pool(state, pool), allocations=state.allocations.set(item, changed))
    state = use(use(state, item, allocation.gained, without_item), item, changed.gained, with_item)
    state = put_pool(state, counted(state, pool_of(state, changed.pool), changed, 1))
    state = with_returning(state, changed)
    more = changed.size_kept - allocation.size_kept
    if not more:
        return state
    experiment = state.experiments[allocation.experiment_id]
    experiment = replaced(experiment, slots_used=experiment.slots_used + more)
    return own(set_experiment(state, experiment), experiment, more)


def saved_checkpoint(state: State, allocation: Allocation, now_us: int) -> State:
    """State in which the allocation has less to lose by a preemption, since it has saved."""
    saved = replace(allocation, since_us=max(now_us, allocation.since_us))
    state = replaced(state, allocations=state.allocations.set(saved.allocation_id, saved))
    experiment = state.experiments[allocation.experiment_id]
    if allocation.leaving or not gives_way(experiment, allocation) or experiment.auxiliary:
        return state
    pool = pool_of(state, allocation.pool)
    victims = with_item(without_item(pool.victims, victim(experiment, allocation)), victim(experiment, saved))
    return put_pool(state, replaced(pool, victims=victims))


def _stays(state: State, name: str, stays: bool) -> State:
    for item in sorted(state.allocations):
        allocation = state.allocations[item]
        if allocation.pool == name and allocation.size and allocation.stays != stays and not allocation.leaving:
            state = _recounted(state, allocation, replace(allocation, stays=stays))
    return state


def leave(state: State, allocation_id: str, leaving: Leaving) -> State:
    """The first reason to leave stays, except that a mere pause of the trial can be taken back by an extension, and that a
    resized one may have to leave for good."""
    allocation = state.allocations.get(allocation_id)
    if allocation is None or allocation.leaving not in ("", "trial_paused", "resized"):
        return state
    if allocation.leaving == "resized" and leaving == "trial_paused":
        return state  # It leaves anyway, and goes on with its new slots only if it is wanted then.
    return mark_leaving(state, allocation, leaving)


def all_leave(state: State, experiment_id: int) -> State:
    experiment = state.experiments.get(experiment_id)
    for allocation_id in experiment.allocations if experiment else ():
        state = leave(state, allocation_id, "experiment_canceled")
    return state


# Use over time


def usage_keys(pool: str, experiment: Experiment) -> tuple[str, str]:
    return (f"{pool}/{experiment.workspace}", f"{pool}/{experiment.workspace}/{experiment.user}")


def use_slots(state: State, experiment: Experiment, pool: str, slots: int, now_us: int) -> State:
    half_life_us = policy_of(state, pool).half_life_us
    if not half_life_us or not slots:
        return state
    usage = state.usage
    for key in usage_keys(pool, experiment):
        settled = settle(usage.get(key) or Usage(at_us=now_us), now_us, half_life_us)
        usage = usage.set(key, replace(settled, slots=settled.slots + slots))
    return replaced(state, usage=usage)


def set_policy(state: State, name: str, policy: PoolPolicy, now_us: int, preempt: bool) -> State:
    """State with the pool's new policy. Past use is forgotten if it no longer counts, and counted from now on if it begins to.
    Running allocations never give way from now on, as their users started them under other rules; with `preempt` all do."""
    old = policy_of(state, name)
    state = replaced(state, policies=state.policies.set(name, policy))
    if preempt or old != policy:
        state = _stays(state, name, not preempt)
    if old.half_life_us == policy.half_life_us:
        return state
    kept = {key: state.usage[key] for key in sorted(state.usage) if not key.startswith(f"{name}/")}
    state = replaced(state, usage=Map(kept))
    for allocation_id in sorted(state.allocations):
        allocation = state.allocations[allocation_id]
        if allocation.pool == name:
            state = use_slots(state, state.experiments[allocation.experiment_id], name, allocation.size, now_us)
    return state
