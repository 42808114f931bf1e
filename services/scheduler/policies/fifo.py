"""First in, first out: by place (at first the order of submission), whatever the priority. No gang is preempted, except one that
started ahead of a larger one and runs longer than it said. The first gang that does not fit holds back all behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tenuto.schemas.events import EventData
from tenuto.schemas.sentences.waiting import Waiting
from tenuto.services.scheduler.policies.backfill import BACKFILL_LOOKED_AT_MAX
from tenuto.services.scheduler.policies.decisions import demand_of
from tenuto.services.scheduler.policies.lending import may_borrow
from tenuto.services.scheduler.policies.passes import PassParts, planned
from tenuto.services.scheduler.policies.reasons import OrderNumbers
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.serving import ELSEWHERE, SATISFIED
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State


def plan(state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> list[EventData]:
    if not pool.queue and not pool.elastic:
        return []
    return planned(PassParts(state, pool, now_us, notes, "fifo", FifoRules), serve_queue)


class FifoRules(PolicyRules):
    late_at_any_priority = True

    def order(self, experiment: Experiment) -> OrderNumbers:
        return {"place": experiment.place}

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        return 0 if self.late(allocation) else None

    def candidates(self, experiment: Experiment, missing: int, given: Mapping[str, int] | None = None) -> Sequence[Candidate]:
        return self.overdue()

    def reachable(
        self, experiment: Experiment, missing: int, shrinkable: Callable[[Experiment], Iterable[Candidate]]
    ) -> Mapping[str, int]:
        return {item.allocation.allocation_id: item.freed for item in (*shrinkable(experiment), *self.overdue())}

    def gives_up(self, experiment: Experiment, other: Experiment) -> bool:
        return True


def serve_queue(parts: PassParts[FifoRules]) -> None:
    state, pool, notes = parts.decisions.state, parts.decisions.pool, parts.decisions.notes
    lent = may_borrow(state, pool)
    if notes is None and not lent and parts.supply.available() == 0:
        surplus = any(parts.decisions.surplus(state.allocations[item]) for item in pool.elastic)
        if not surplus and not parts.rules.overdue():
            return
    held, looked_at = False, 0
    for _, _, key in sorted(pool.queue, key=lambda entry: entry[1:]):
        experiment = state.experiments[key]
        if held:
            looked_at += 1
            parts.backfill.backfill(experiment)
            hopeless = parts.reservations.held[-1].start is None or looked_at > BACKFILL_LOOKED_AT_MAX
            if notes is None and not lent and hopeless:
                break
        elif _serve_all(parts, experiment):
            held = True
            parts.reservations.reserve(experiment)


def _serve_all(parts: PassParts[FifoRules], experiment: Experiment) -> bool:
    """True: one of its trials is held."""
    used = experiment.slots_used
    for number in experiment.waiting:
        outcome, slots = parts.serving.serve(experiment, number, used)
        if outcome in ELSEWHERE and experiment.trials[number].excluded:
            continue  # Another of its trials may go where this one failed.
        if outcome == "soon":
            parts.quotas.promise(experiment, slots)
        if outcome == "limit":
            parts.quota_keeping.keep_for(demand_of(experiment, number, used))
        if outcome not in SATISFIED:
            return outcome == "held"
        used += slots
    return False
