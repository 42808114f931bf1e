"""First in, first out: by place (at first the order of submission), whatever the priority. Nobody is preempted, except a gang
that started ahead of a larger one and runs longer than it said. The first gang that does not fit holds back all behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenuto.schemas.events import EventData
from tenuto.schemas.sentences.waiting import Waiting
from tenuto.services.scheduler.policies.backfilling import BACKFILL_LOOKED_AT_MAX
from tenuto.services.scheduler.policies.quotas import Quotas
from tenuto.services.scheduler.policies.reasons import OrderNumbers
from tenuto.services.scheduler.policies.victims import Candidate
from tenuto.services.scheduler.state import Allocation, Experiment, Pool, State


def plan(state: State, pool: Pool, now_us: int, notes: dict[int, Waiting] | None = None) -> list[EventData]:
    return _Pass(state, pool, now_us, notes).plan() if pool.queue or pool.elastic else []


class _Pass(Quotas):
    policy = "fifo"

    def serve_queue(self) -> None:
        lent = self.may_borrow()
        spared = any(self.surplus(self.state.allocations[item]) for item in self.pool.elastic)
        if self.notes is None and not lent and self.available() == 0 and not spared and not self.overdue():
            return
        held, looked_at = False, 0
        for _, _, experiment_id in sorted(self.pool.queue, key=lambda entry: entry[1:]):
            experiment = self.state.experiments[experiment_id]
            if held:
                looked_at += 1
                self.backfill(experiment)
                if self.notes is None and not lent and (self.reserved is None or looked_at > BACKFILL_LOOKED_AT_MAX):
                    break
            elif self._serve_all(experiment):
                held = True
                self.reserve(experiment)

    def reachable(self, experiment: Experiment, missing: int) -> Mapping[str, int]:
        return {item.allocation.allocation_id: item.freed for item in (*self.shrinkable(experiment), *self.overdue())}

    def gives_up(self, experiment: Experiment, other: Experiment) -> bool:
        return True

    def _serve_all(self, experiment: Experiment) -> bool:
        """True: one of its trials is held."""
        used = experiment.slots_used
        for number in experiment.waiting:
            outcome = self.serve(experiment, number, used)
            if outcome in ("never", "aside") and experiment.trials[number].excluded:
                continue  # Another of its trials may go where this one failed.
            if outcome == "limit":
                self.kept_back(experiment, number, used)
            if outcome != "granted" and outcome != "soon":
                return outcome == "held"
            used += self.size
        return False

    def order(self, experiment: Experiment) -> OrderNumbers:
        return {"place": experiment.place}

    def rank(self, experiment: Experiment, allocation: Allocation) -> int | None:
        until_us = allocation.backfill_until_us
        return 0 if until_us is not None and until_us <= self.now_us else None

    def candidates(self, experiment: Experiment, missing: int) -> Sequence[Candidate]:
        return self.overdue()
