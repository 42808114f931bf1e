"""The queue, for people: its order, and the reason why each experiment waits. It runs the same pass that decides, and records its
reasons."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.queue import (
    POSITION_MAX,
    PastAgent,
    PastSlot,
    PoolQueue,
    QueueAnswer,
    QueueQuestion,
    QueueRow,
    ShareRow,
)
from tenuto.schemas.sentences.waiting import Behind, Leaving, Waiting
from tenuto.services.scheduler.policies import auxiliary, fair_share, fifo, priority, targets
from tenuto.services.scheduler.policies.feasibility import never
from tenuto.services.scheduler.state import Agent, Closed, Pool, Share, State, policy_of
from tenuto.services.scheduler.state.slotsets import count

POLICIES = {"priority": priority.plan, "fair_share": fair_share.plan, "fifo": fifo.plan}
SHARES_MAX = 1_000
"""Workspaces and users in an answer."""
ROWS_MAX = 1_000
"""Most experiments of one pool in an answer; few read more, and the next page has them."""


def explain(state: State, name: str, now_us: int, after: int = 0, rows_max: int = ROWS_MAX) -> list[QueueRow]:
    """The experiments of a pool that wait for slots or have some, in the order in which they are served: one page of them, behind
    position `after`."""
    last = after + rows_max
    pool = state.pools.get(name)
    if pool is None:
        return []
    notes: dict[int, Waiting] = {}
    auxiliary.plan(state, pool, notes)
    policy = policy_of(state, name).name
    shortened = _shortened(state, pool, policy, last)
    drafts = POLICIES[policy](state, shortened, now_us, notes)
    for key in [entry[2] for entry in shortened.queue]:
        # Whatever else a pass came upon first: this one waits for other agents, and for nothing that others do.
        found = never(state, pool, state.experiments[key])
        if found is not None:
            notes[key] = found
    shares = targets.divided(state, pool, now_us).targets if policy == "fair_share" else None
    # Those that need no slots are not behind anybody.
    served = [draft.experiment_id for draft in drafts if isinstance(draft, AllocationGranted)]
    order = [*_auxiliary_order(state, pool), *_order(state, shortened, policy, [*served, *notes])]
    leaving = _leaving(state, pool)
    rows = [
        _row(state, pool, key, notes, None if shares is None else shares.get(key, 0), leaving.get(key, NOTHING))
        for key in order[after:last]
    ]
    return [row.model_copy(update={"position": at}) for at, row in enumerate(rows, after + 1)]


def _shortened(state: State, pool: Pool, policy: str, rows_max: int) -> Pool:
    """The pool with only as much of its queue as is shown. Only a fair share depends on all waiting experiments; other reasons do
    not. If not all experiments of a priority are shown, the first ones of each owner are, because owners take turns."""
    if policy == "fair_share" or len(pool.queue) <= rows_max:
        return pool
    if policy == "fifo":
        return replace(pool, queue=tuple(sorted(sorted(pool.queue, key=lambda entry: entry[1:])[:rows_max])))
    level = pool.queue[rows_max][0]
    start, end = (bisect_left(pool.queue, (priority, float("-inf"), 0)) for priority in (level, level + 1))
    turns: dict[tuple[str, str], int] = {}
    found: list[tuple[int, int]] = []
    for at in range(start, end):
        experiment = state.experiments[pool.queue[at][2]]
        owner = (experiment.workspace, experiment.user)
        turns[owner] = turn = turns.get(owner, 0) + 1
        found.append((turn, at))
    shown = sorted(at for _, at in sorted(found)[: rows_max - start])
    return replace(pool, queue=(*pool.queue[:start], *(pool.queue[at] for at in shown)))


def _order(state: State, pool: Pool, policy: str, served: Iterable[int]) -> list[int]:
    """Waiting experiments in the order in which the pass `served` them. Experiments that wait for nothing come among them where
    they would be served if they waited, or at the end if the order depends on what each holds."""
    by_priority = policy == "priority"

    def place(key: int) -> tuple[int, float, int]:
        experiment = state.experiments[key]
        return (experiment.priority if by_priority else 0, experiment.place, key)

    queued = {entry[2] for entry in pool.queue}
    waiting = list(dict.fromkeys([*(key for key in served if key in queued), *sorted(queued, key=place)]))
    leaving = {state.allocations[item].experiment_id for item in pool.leaving}
    others = sorted({*pool.held, *leaving} - queued, key=place)
    if policy == "fair_share":
        return [*waiting, *others]
    order: list[int] = []
    for key in waiting:
        while others and place(others[0]) < place(key):
            order.append(others.pop(0))
        order.append(key)
    return [*order, *others]


def _auxiliary_order(state: State, pool: Pool) -> list[int]:
    waiting = {entry[2] for entry in pool.auxiliary_queue}
    known = [state.experiments[key] for key in sorted({*waiting, *pool.auxiliary})]
    return [experiment.experiment_id for experiment in sorted(known, key=lambda item: item.queue_key)]


class _Leaving(NamedTuple):
    """Slots and trials of one experiment that are leaving one pool."""

    slots: int
    """Number of slots that are being freed."""
    returning: int
    """Number of its trials that wait for slots again as soon as their workers have left."""


NOTHING = _Leaving(0, 0)


def _leaving(state: State, pool: Pool) -> dict[int, _Leaving]:
    found: dict[int, _Leaving] = {}
    for allocation in [state.allocations[item] for item in pool.leaving]:
        key, experiment = allocation.experiment_id, state.experiments[allocation.experiment_id]
        slots, returning = found.get(key, NOTHING)
        returns = experiment.open and allocation.trial_number in experiment.returning
        found[key] = _Leaving(slots + count(allocation.given_up), returning + returns)
    return found


def _row(state: State, pool: Pool, key: int, notes: dict[int, Waiting], share: int | None, leaving: _Leaving) -> QueueRow:
    experiment = state.experiments[key]
    note = notes.get(key)
    queued = experiment.queued and experiment.pool == pool.name
    why: Waiting | None = note or Behind(slots_wanted=experiment.slots_per_trial, kept=False)
    if not queued:
        why = Leaving(trials=leaving.returning, slots=leaving.slots) if leaving.returning else None
    numbers = why.recorded() if why and queued else {}
    expected = numbers.pop("expected_us", None)
    expected_trial = numbers.pop("expected_trial", "")
    return QueueRow(
        experiment_id=key,
        pool=pool.name,
        priority=experiment.priority,
        place=experiment.place,
        weight=experiment.weight,
        workspace=experiment.workspace,
        user=experiment.user,
        max_slots=experiment.max_slots,
        slots_per_trial=experiment.slots_per_trial,
        slots=pool.held.get(key, 0),
        slots_leaving=leaving.slots,
        auxiliary_trials=pool.auxiliary.get(key, 0),
        share=share,
        trials_waiting=len(experiment.waiting) if queued else 0,
        trials_leaving=leaving.returning,
        rule=why.RULES[0] if why else "",
        text=why.sentence({"pool": pool.name}) if why else "",
        expected_us=expected if isinstance(expected, int) else None,
        expected_trial=str(expected_trial),
        numbers=numbers,
    )


def queue_answer(state: State, question: QueueQuestion, now_us: int) -> QueueAnswer:
    names = sorted(state.pools) if question.pool is None else [name for name in [question.pool] if name in state.pools]
    left, more, pools = question.rows_max, False, list[PoolQueue]()
    for name in names:
        pool, policy = state.pools[name], policy_of(state, name)
        rows: list[QueueRow] = []
        if name >= question.after_pool and not more:
            after = question.after_position if name == question.after_pool else 0
            room = min(left, POSITION_MAX - after)
            rows = explain(state, name, now_us, after, room + 1)  # one more tells whether there are more
            more, rows = len(rows) > room and after + room < POSITION_MAX, rows[:room]
        left -= len(rows)
        pools.append(
            PoolQueue(
                pool=name,
                policy=policy.name,
                usage_half_life_hours=policy.half_life_us / 3.6e9 if policy.half_life_us else None,
                capacity=pool.capacity,
                free=pool.free,
                leaving=pool.coming,
                agents=len(pool.agents),
                waiting=len(pool.queue) + len(pool.auxiliary_queue),
                auxiliary_trials=sum(pool.auxiliary[key] for key in sorted(pool.auxiliary)),
                rows=tuple(rows),
            )
        )
    return QueueAnswer(pools=tuple(pools), shares=_shares(state), more=more)


def _shares(state: State) -> tuple[ShareRow, ...]:
    rows = []
    for key in sorted({*state.shares, *state.owner_slots})[:SHARES_MAX]:
        owner, _, name = key.partition("/")
        share = state.shares.get(key, Share())
        found = {"owner": owner, "name": name, "weight": share.weight, "max_slots": share.max_slots}
        rows.append(ShareRow.model_validate({**found, "slots": state.owner_slots.get(key, 0)}))
    return tuple(rows)


def agents_answer(state: State, most: int) -> tuple[PastAgent, ...]:
    """The first agents by their ids, with their slots and the allocations on them."""
    return tuple(_agent(state.agents[agent_id]) for agent_id in sorted(state.agents)[:most])


def _agent(agent: Agent) -> PastAgent:
    used, closed = dict(agent.used), agent.closed or Closed()
    return PastAgent(
        id=agent.agent_id,
        pool=agent.pool,
        kind=agent.kind,
        lost=agent.lost,
        slots=tuple(
            PastSlot(slot_id=slot, enabled=not (closed.agent or slot in closed.slots), allocation_id=used.get(slot))
            for slot in agent.slots
        ),
        auxiliary=agent.auxiliary,
    )
