"""Starts of waiting gangs against their forecasts. Forecasts hold where nothing but earlier ends can happen: first in, first
out, with no failures, no changes by users, and trials that end no later than their users said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted, PoolEvent
from tenuto.schemas.ids import trial_id
from tenuto.services.scheduler.explain import explain

if TYPE_CHECKING:
    from tenuto.services.scheduler.simulation.cluster import SimulatedCluster


class Foretold:
    """Asks before each event why trials wait, as people do, and keeps the earliest start that it was told for each."""

    def __init__(self, *, heads_only: bool = False) -> None:
        """`heads_only`: only of the gang that is next. With constraints nobody knows where those ahead of a gang will be."""
        self.heads_only = heads_only
        self.wrong: list[str] = []
        self.starts_us: dict[str, int] = {}
        """Trial -> the earliest start that was foretold."""
        self.answers = 0
        """Number of forecasts of a start."""
        self._asked_us = 0

    def hear(self, cluster: SimulatedCluster, data: EventData) -> None:
        if isinstance(data, AllocationGranted):
            start_us = self.starts_us.get(data.trial_id)
            if start_us is not None and cluster.now_us > start_us:
                self.wrong.append(f"{data.trial_id} was to start at {start_us} and started at {cluster.now_us}")
        elif not isinstance(data, PoolEvent):
            self._ask(cluster)
            self._asked_us = cluster.now_us

    def _ask(self, cluster: SimulatedCluster) -> None:
        """At the time of the event before."""
        state = cluster.state
        for name in sorted(state.pools):
            if not state.pools[name].queue:
                continue
            rows = [row for row in explain(state, name, self._asked_us) if row.trials_waiting and row.slots_per_trial]
            for row in rows[:1] if self.heads_only else rows:
                if row.expected_us is None:
                    continue
                self.answers += 1
                trial = trial_id(row.experiment_id, state.experiments[row.experiment_id].waiting[0])
                earliest_us = min(row.expected_us, self.starts_us.get(trial, row.expected_us))
                if row.expected_us > earliest_us:
                    self.wrong.append(f"{trial} was to start at {earliest_us} and is now to start at {row.expected_us}")
                self.starts_us[trial] = earliest_us
