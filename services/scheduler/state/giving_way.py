"""Allocations that may be made to give slots back for others: all but those of users who asked against it, and those that ran
when their pool's policy changed."""

from __future__ import annotations

from tenuto.services.scheduler.state import Allocation, Experiment, Pool


def gives_way(experiment: Experiment, allocation: Allocation) -> bool:
    """True if the allocation may be preempted, or shrunk, for others."""
    return experiment.preemptible and not allocation.stays


def slots_kept(pool: Pool, experiment: Experiment) -> int:
    """Slots that the experiment holds in the pool and cannot be made to give back."""
    holds = pool.staying if experiment.preemptible else pool.held
    return holds.get(experiment.experiment_id, 0)
