"""Auxiliary trials: `slots_per_trial: 0`.

They take no slots, so they neither wait for those of others nor make others wait; no policy, share or quota of slots counts them.
Each starts at once on the agent that has the fewest of them, of the experiment's own pool or else of a fallback pool. An agent
runs a bounded number (`TENUTO_AUXILIARY_TRIALS_MAX`, recorded when it joins), because each is a process.
"""

from __future__ import annotations

from bisect import insort

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted
from tenuto.schemas.ids import allocation_id, trial_id
from tenuto.schemas.sentences.grants import AuxiliaryStarts
from tenuto.schemas.sentences.waiting import AgentsFull, Waiting
from tenuto.services.scheduler.policies.feasibility import no_room
from tenuto.services.scheduler.policies.lending import may_borrow
from tenuto.services.scheduler.policies.placement import allows, for_trial
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.state import Constraints, Experiment, Pool, State


def plan(state: State, pool: Pool, notes: dict[int, Waiting] | None = None) -> list[EventData]:
    """Grants that should happen now, the most urgent first. `notes`: receives the reason why each experiment waits."""
    if not pool.auxiliary_queue:
        return []
    home = _Rooms(state, pool)
    rooms = {pool.name: home}
    drafts: list[EventData] = []
    lent = may_borrow(state, pool)
    for _, _, key in pool.auxiliary_queue:
        if home.full and not lent and notes is None:
            break
        experiment = state.experiments[key]
        for number in experiment.waiting:
            draft = _placed(state, pool, experiment, number, rooms)
            if draft is not None:
                drafts.append(draft)
                continue
            if notes is not None and key not in notes:
                notes[key] = _why(state, pool, for_trial(experiment, number))
            if not experiment.trials[number].excluded:
                break  # The others may go nowhere else.
    return drafts


class _Rooms:
    """The agents of one pool that take another trial, during one pass."""

    def __init__(self, state: State, pool: Pool) -> None:
        self._state = state
        self._room = list(pool.auxiliary_room)
        self._none_for: set[Constraints | None] = set()

    @property
    def full(self) -> bool:
        return not self._room

    def take(self, asked: Constraints | None) -> tuple[str, int] | None:
        """The agent with the fewest, and how many it has; ties: by agent id."""
        if asked in self._none_for:
            return None
        agents = self._state.agents
        for at, (count, agent_id) in enumerate(self._room):
            agent = agents[agent_id]
            if asked is None or allows(asked, agent):
                del self._room[at]
                if count + 1 < agent.auxiliary_max:
                    insort(self._room, (count + 1, agent_id))
                return agent_id, count
        self._none_for.add(asked)
        return None


def _placed(state: State, home: Pool, experiment: Experiment, number: int, rooms: dict[str, _Rooms]) -> AllocationGranted | None:
    asked = for_trial(experiment, number).constraints
    for name in (home.name, *experiment.fallback_pools):
        pool = state.pools.get(name)
        if pool is None or (name != home.name and pool.auxiliary_queue):
            continue
        if name not in rooms:
            rooms[name] = _Rooms(state, pool)
        found = rooms[name].take(asked)
        if found is not None:
            return _grant(state, experiment, number, name, *found)
    return None


def _grant(state: State, experiment: Experiment, number: int, pool: str, agent_id: str, count: int) -> AllocationGranted:
    trial = trial_id(experiment.experiment_id, number)
    lent = pool != experiment.pool
    why = AuxiliaryStarts(
        agent_trials=count,
        agent_trials_max=state.agents[agent_id].auxiliary_max,
        home_pool=experiment.pool if lent else "",
    )
    return AllocationGranted(
        pool=pool,
        allocation_id=allocation_id(trial, experiment.trials[number].grants + 1),
        trial_id=trial,
        experiment_id=experiment.experiment_id,
        slots=(AgentSlots(agent_id=agent_id, slot_ids=()),),
        reason=why.reason("auxiliary.lent" if lent else "auxiliary.starts"),
    )


def _why(state: State, pool: Pool, experiment: Experiment) -> Waiting:
    agents = [state.agents[agent_id] for agent_id in pool.agents]
    open_now = [item for item in agents if not (item.closed is not None and item.closed.agent)]
    allowed = [item for item in open_now if experiment.constraints is None or allows(experiment.constraints, item)]
    if not allowed:
        return no_room(state, pool, experiment)
    return AgentsFull(**gang(experiment), agents=len(allowed), trials_max=sum(item.auxiliary_max for item in allowed))
