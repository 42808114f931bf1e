"""The invariants of the state, asserted by every test after every step."""

from __future__ import annotations

from tenuto.services.scheduler.state import State
from tenuto.services.scheduler.state.rebuild import CODEC


def check(state: State) -> None:
    """Raises AssertionError. What is derived must equal what is derived anew; no slot is in two live allocations."""
    taken: dict[tuple[str, int], str] = {}
    for key in sorted(state.allocations):
        allocation = state.allocations[key]
        experiment = state.experiments[allocation.experiment_id]
        trial = experiment.trials[allocation.trial_number]
        assert trial.allocation_id == key, f"{key} is live, but trial {trial.number} has {trial.allocation_id!r}"
        most = max(experiment.slots_per_trial, experiment.slots_most)
        for size in (allocation.size, allocation.size_soon):
            assert experiment.slots_per_trial <= size <= most, f"{key} is not a whole gang"
        assert allocation.next or allocation.leaving != "resized", f"{key} is resized to nothing"
        allowed = allocation.leaving or allocation.pool in (experiment.pool, *experiment.fallback_pools)
        assert allowed, f"{key} goes on in a pool that its experiment may not use"
        assert not experiment.canceled or allocation.leaving, f"{key} of a canceled experiment goes on"
        assert trial.phase in ("wanted", "failed") or allocation.leaving, f"{key} of a {trial.phase} trial goes on"
        if experiment.auxiliary:
            assert not allocation.next
            assert all(key in state.agents[agent_id].auxiliary for agent_id, _ in allocation.slots), f"{key} is on no agent"
        for agent_id, slot_ids in (*allocation.slots, *allocation.gained):
            for slot in slot_ids:
                other = taken.setdefault((agent_id, slot), key)
                assert other == key, f"slot {slot} of {agent_id} is in {other} and {key}"
    for number in sorted(state.experiments):
        experiment = state.experiments[number]
        assert not experiment.ended or experiment.allocations, f"experiment {number} ended and is still known"
        for trial in (experiment.trials[key] for key in sorted(experiment.trials)):
            assert trial.phase != "stopped" or trial.allocation_id, f"trial {number}-{trial.number} is over and still known"
            assert trial.grants or not trial.allocation_id
    for agent in (state.agents[key] for key in sorted(state.agents)):
        assert agent.used or agent.auxiliary or not agent.lost, f"agent {agent.agent_id} is gone and still known"
    assert CODEC.load(CODEC.dump(state)) == state, "the indexes do not follow from the facts"
