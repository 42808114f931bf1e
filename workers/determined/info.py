"""`det.get_cluster_info()`."""

from __future__ import annotations

import copy
import os
from typing import Any

from tenuto.workers.determined import facts
from tenuto.workers.harness.determined_names import UnknownName


class TrialInfo:
    """The trial that runs: `det.get_cluster_info().trial`."""

    def __init__(self, found: facts.Facts) -> None:
        self.trial_id = found.trial_number
        self.experiment_id = found.trial.experiment_id
        self.trial_seed = found.trial.trial_seed
        self.hparams: dict[str, Any] = copy.deepcopy(dict(found.trial.hyperparameters))
        self._config = facts.experiment_config(found.trial.config)
        self._steps_completed = found.steps_completed


class ClusterInfo:
    """The cluster, as code in a trial sees it."""

    task_type = "TRIAL"

    def __init__(self, found: facts.Facts) -> None:
        self._facts = found
        self.trial = TrialInfo(found)
        self.allocation_id = found.allocation_id
        self.task_id = found.trial.trial_id
        self.slot_ids = list(range(found.trial.slots if found.trial.gang is None else found.trial.gang.local_size))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnknownName(
            f"get_cluster_info() has no {name!r} here, as a trial has no address and no token of the cluster: use tenuto.client, "
            "with a token of your own."
        )

    @property
    def latest_checkpoint(self) -> str | None:
        return self._facts.latest_checkpoint

    @property
    def user_data(self) -> dict[str, Any]:
        data = self.trial._config["data"]
        return dict(data) if isinstance(data, dict) else {}

    @property
    def container_rank(self) -> int:
        return int(os.environ.get("GROUP_RANK", 0))

    @property
    def container_addrs(self) -> list[str]:
        """One address for each node of the trial. Ranks find each other by MASTER_ADDR and MASTER_PORT."""
        own = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        nodes = max(1, int(os.environ.get("WORLD_SIZE", 1)) // max(1, own))
        return [os.environ.get("MASTER_ADDR", "127.0.0.1")] * nodes

    @property
    def container_slot_counts(self) -> list[int]:
        return [len(self.slot_ids)] * len(self.container_addrs)


def get_cluster_info() -> ClusterInfo | None:
    """None without a cluster."""
    found = facts.current()
    return None if found is None else ClusterInfo(found)
