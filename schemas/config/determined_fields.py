"""Fields of Determined's configuration that Tenuto does not have, each with what to write instead; naming it helps more than a
list of all fields. Fields of both, and differences of meaning, are in docs/from-determined.md."""

from __future__ import annotations

from collections.abc import Mapping

_HOROVOD = "leave it out; Horovod's own settings go into environment.variables, such as HOROVOD_FUSION_THRESHOLD"
_CONTAINER = "leave it out: the operator of an agent sets how its containers run"
_BEGIN = "write source_checkpoint: ID, as `tenuto ckpt ls` shows it"
_LENGTH = "write max_length: {batches: N} or {epochs: N}, at which a trial has its full length"

FIELDS: Mapping[str, str] = {
    "bind_mounts": "write environment.mounts: [{source, target, writable}] if there is an image; else leave it out, and your "
    "code sees the agent's directories as they are",
    "data": "put its values under hyperparameters, where your code reads them with get_hparam",
    "data_layer": "leave it out: your code opens its data itself",
    "debug": "leave it out: `tenuto exp logs` has all that your code prints",
    "integrations": "leave it out",
    "internal": "leave it out",
    "pbs": "leave it out: agents are started by whoever runs the cluster",
    "perform_initial_validation": "leave it out: a trial is not validated before it trains",
    "preemption_timeout": "leave it out: a trial that must leave saves after its batch, and goes on elsewhere",
    "profiling": "leave it out, and use your framework's profiler",
    "records_per_epoch": "leave it out: an epoch is one pass over your training data (of a stream without a length: "
    "batches_per_epoch of your trial)",
    "retention_policy": "leave it out",
    "scheduling_unit": "write log_period: {batches: N}, after which training metrics are reported",
    "security": "leave it out",
    "slurm": "leave it out: agents are started by whoever runs the cluster",
    "tensorboard_storage": "leave it out: metrics are recorded by the cluster",
    "workspace": "write resources.workspace",
    "environment.add_capabilities": _CONTAINER,
    "environment.drop_capabilities": _CONTAINER,
    "environment.environment_variables": "write environment.variables: {NAME: value}, a mapping and not a list",
    "environment.force_pull_image": "write environment.pull: always",
    "environment.pod_spec": _CONTAINER,
    "environment.ports": "leave it out: ranks find free ports themselves",
    "environment.proxy_ports": "leave it out: no port of a trial is made reachable from outside",
    "resources.agent_label": "write agent_labels: [key=value]",
    "resources.devices": _CONTAINER,
    "resources.is_single_node": "write locality: agent, which keeps a trial's slots on one agent",
    "resources.native_parallel": "leave it out: set slots_per_trial",
    "resources.resource_pool": "write pool",
    "resources.shm_size": "leave it out: a trial has the shared memory of its node, or what the operator sets for containers",
    "resources.slots": "write slots_per_trial",
    "optimizations.auto_tune_tensor_fusion": _HOROVOD,
    "optimizations.average_training_metrics": "leave it out: training metrics are always those of all slots",
    "optimizations.grad_updates_size_file": _HOROVOD,
    "optimizations.gradient_compression": "leave it out: gradients are not compressed",
    "optimizations.tensor_fusion_cycle_time": _HOROVOD,
    "optimizations.tensor_fusion_threshold": _HOROVOD,
    "searcher.bracket_rungs": "write max_rungs and mode, from which the brackets follow",
    "searcher.budget": "write max_trials, and max_length for each of them",
    "searcher.length_per_round": "write max_length and generations, between which the population is compared",
    "searcher.max_steps": _LENGTH,
    "searcher.max_time": _LENGTH,
    "searcher.num_rounds": "write generations",
    "searcher.num_rungs": "write max_rungs",
    "searcher.source_checkpoint_uuid": _BEGIN,
    "searcher.source_trial_id": _BEGIN,
    "searcher.stop_once": "write mode: stopping",
    "searcher.target_trial_steps": _LENGTH,
    "searcher.time_metric": "leave it out: max_length counts batches or epochs",
    "searcher.train_stragglers": "leave it out",
    "searcher.unit": "leave it out: max_length has the unit",
    "checkpoint_storage.tensorboard_path": "leave it out: metrics are recorded by the cluster",
    "log_policies.name": "leave it out: a policy is known by its pattern",
}
"""Advice by path of the field, without indices."""
LENGTH_FIELDS: Mapping[str, str] = {
    "records": "write batches: the records divided by those of a batch",
}
"""Advice by field of any length, such as `min_validation_period`."""
METHODS: Mapping[str, str] = {
    "adaptive": "adaptive_asha",
    "adaptive_simple": "adaptive_asha",
    "async_halving": "asha",
    "sync_halving": "sha",
}
CARRIED_VARIABLE = "DETERMINED_FIELDS"
"""Environment variable of a converted experiment: a JSON object of the fields that only code written for Determined asks for
(`data`, `records_per_epoch`), and `length: script` where that code says how long it trains."""
LAUNCHER = "determined.launch"
"""Prefix of Determined's modules that start ranks."""


def instead_of(path: str) -> str:
    """Advice for a field of Determined's that Tenuto does not have; empty for any other field. `path`: without indices."""
    return FIELDS.get(path) or LENGTH_FIELDS.get(path.rpartition(".")[2], "")
