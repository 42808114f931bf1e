"""The queue, for people: who is next, and why each one waits. It runs the very pass that decides, and writes down its reasons."""

from __future__ import annotations

from dataclasses import replace

from tenuto.schemas.queue import PoolQueue, QueueAnswer, QueueQuestion, QueueRow, ShareRow
from tenuto.services.scheduler.policies import auxiliary, fair_share, fifo, priority, targets, words
from tenuto.services.scheduler.policies.planner import Waiting
from tenuto.services.scheduler.state import Experiment, Pool, Share, State, policy_of

POLICIES = {"priority": priority.plan, "fair_share": fair_share.plan, "fifo": fifo.plan}
SHARES_MAX = 1_000
"""Workspaces and users in an answer."""
ROWS_MAX = 1_000
"""Experiments of one pool in an answer; nobody reads more."""


def explain(state: State, name: str, now_us: int) -> list[QueueRow]:
    """The experiments of a pool that wait for slots or have some, in the order in which they are served."""
    pool = state.pools.get(name)
    if pool is None:
        return []
    notes: dict[int, Waiting] = {}
    auxiliary.plan(state, pool, notes)
    policy = policy_of(state, name).name
    shortened = _shortened(pool, policy)
    POLICIES[policy](state, shortened, now_us, notes)
    shares = targets.divided(state, pool, now_us).targets if policy == "fair_share" else {}
    # Those that need no slots are not behind anybody.
    order = [*_auxiliary_order(state, pool), *_order(state, shortened, policy)]
    rows = [_row(state, pool, key, notes, shares.get(key)) for key in order[:ROWS_MAX]]
    return [row.model_copy(update={"position": at}) for at, row in enumerate(rows, 1)]


def _shortened(pool: Pool, policy: str) -> Pool:
    """With no more of its queue than is shown. A fair share depends on all who wait; no other reason does."""
    if policy == "fair_share":
        return pool
    key = (lambda entry: entry[1:]) if policy == "fifo" else None
    return replace(pool, queue=tuple(sorted(sorted(pool.queue, key=key)[:ROWS_MAX])))


def _order(state: State, pool: Pool, policy: str) -> list[int]:
    waiting = {entry[2] for entry in pool.queue}
    known = [state.experiments[key] for key in sorted({*waiting, *pool.held})]
    fifo_order = policy == "fifo"

    def place(experiment: Experiment) -> tuple[int, float, int]:
        return (0 if fifo_order else experiment.priority, experiment.place, experiment.experiment_id)

    return [experiment.experiment_id for experiment in sorted(known, key=place)]


def _auxiliary_order(state: State, pool: Pool) -> list[int]:
    waiting = {entry[2] for entry in pool.auxiliary_queue}
    known = [state.experiments[key] for key in sorted({*waiting, *pool.auxiliary})]
    return [experiment.experiment_id for experiment in sorted(known, key=lambda item: item.queue_key)]


def _row(state: State, pool: Pool, key: int, notes: dict[int, Waiting], share: int | None) -> QueueRow:
    experiment = state.experiments[key]
    note = notes.get(key)
    queued = experiment.queued and experiment.pool == pool.name
    if not queued:
        text, rule = "", ""
    elif note is None:
        rule = "behind"
        text = f"needs {words.slots(experiment.slots_per_trial)}; those ahead of it are served first"
    else:
        rule, text = note.rule, note.text
    numbers = dict(note.numbers) if note and queued else {}
    expected = numbers.pop("expected_us", None)
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
        auxiliary_trials=pool.auxiliary.get(key, 0),
        share=share,
        trials_waiting=len(experiment.waiting) if queued else 0,
        rule=rule,
        text=text,
        expected_us=expected if isinstance(expected, int) else None,
        numbers=numbers,
    )


def queue_answer(state: State, question: QueueQuestion, now_us: int) -> QueueAnswer:
    names = sorted(state.pools) if question.pool is None else [name for name in [question.pool] if name in state.pools]
    left, pools = question.rows_max, []
    for name in names:
        pool, policy = state.pools[name], policy_of(state, name)
        rows = explain(state, name, now_us)[:left]
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
    return QueueAnswer(pools=tuple(pools), shares=_shares(state))


def _shares(state: State) -> tuple[ShareRow, ...]:
    rows = []
    for key in sorted({*state.shares, *state.owner_slots})[:SHARES_MAX]:
        owner, _, name = key.partition("/")
        share = state.shares.get(key, Share())
        found = {"owner": owner, "name": name, "weight": share.weight, "max_slots": share.max_slots}
        rows.append(ShareRow.model_validate({**found, "slots": state.owner_slots.get(key, 0)}))
    return tuple(rows)
