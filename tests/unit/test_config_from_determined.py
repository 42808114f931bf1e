"""Configurations as they are written for Determined: accepted where the meaning is the same, else refused by one sentence for
each field that says what to write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.config import determined_fields, storage
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import parse_config
from tests.support.determined import CONFIG_FIELDS, HYPERPARAMETERS, SEARCH_METHODS

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/experiment-config.schema.json").read_text())

ACCEPTED = {
    "trial": """
        name: mnist
        hyperparameters: {global_batch_size: 64, lr: {type: log, base: 10, minval: -4, maxval: -1}, n: {type: const, val: 3}}
        min_validation_period: {batches: 0}
        min_checkpoint_period: {epochs: 0}
        searcher: {name: adaptive_asha, metric: loss, smaller_is_better: true, max_length: {batches: 937}, max_trials: 16}
        resources: {slots_per_trial: 2, priority: 50, weight: 2}
        optimizations: {aggregation_frequency: 2, average_aggregated_gradients: true}
        checkpoint_storage: {save_experiment_best: 1, save_trial_best: 1, save_trial_latest: 1}
        entrypoint: model_def:MNistTrial
        max_restarts: 0
    """,
    "without a name": """
        entrypoint: model_def:MNistTrial
        searcher: {name: single, metric: loss, max_length: {epochs: 1}}
    """,
    "words": """
        entrypoint: [python3, train.py, --name, "two words"]
        searcher: {name: random, metric: loss, max_length: {batches: 10}, max_trials: 4, max_concurrent_trials: 2}
    """,
}

REFUSED = {
    "newest core api": """
        name: core-api-stage-4
        entrypoint: python3 -m determined.launch.torch_distributed python3 train.py --epochs 3
        searcher: {name: single, metric: x}
        resources: {slots_per_trial: 2}
        max_restarts: 0
    """,
    "old trial": """
        description: cifar
        data: {url: none}
        records_per_epoch: 50000
        scheduling_unit: 100
        min_validation_period: {records: 1000}
        searcher: {name: adaptive_simple, metric: loss, max_length: {records: 100}, max_trials: 8, budget: 3}
        entrypoint: model_def:CIFARTrial
        perform_initial_validation: true
    """,
    "containers": """
        name: hf
        debug: false
        workspace: team
        project: vision
        environment:
          environment_variables: [A=1, B=2]
          image: some/image:1
          pod_spec: {}
        bind_mounts: [{host_path: /tmp, container_path: /data}]
        checkpoint_storage: {type: shared_fs, host_path: /mnt, storage_path: checkpoints}
        resources: {resource_pool: gpus, shm_size: 4096}
        profiling: {enabled: true}
        searcher: {name: asha, metric: loss, max_time: 100, time_metric: batches, max_trials: 8, stop_once: true}
        entrypoint: python3 -m determined.launch.horovod --autohorovod python3 -m determined.exec.harness model_def:MyTrial
        log_policies: [{name: cuda, pattern: error, action: {type: exclude_node}}]
        made_up: 1
        made_down: 2
    """,
}


@pytest.mark.parametrize("shape", ACCEPTED)
def test_what_means_the_same_is_accepted(shape: str) -> None:
    config = parse_config(ACCEPTED[shape])
    assert config.min_validation_period is None
    assert config.min_checkpoint_period is None
    if shape == "without a name":
        assert config.name == "MNistTrial"
    if shape == "words":
        assert (config.entrypoint, config.name) == ("python3 train.py --name 'two words'", "train")


def problems(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        parse_config(text)
    found = {problem.path: problem.message for problem in refused.value.problems}
    assert len(found) == len(refused.value.problems), "one sentence for each field"
    return found


def test_each_refusal_says_what_to_write() -> None:
    found = problems(REFUSED["newest core api"])
    assert set(found) == {"entrypoint", "searcher.max_length"}
    assert found["entrypoint"].endswith("Tenuto starts one for each slot; write `train.py` and what follows it")
    found = problems(REFUSED["old trial"])
    assert found["searcher.name"] == "there is no such search method; write adaptive_asha"
    assert (
        found["min_validation_period.records"] == "there is no such field; write batches: the records divided by those of a batch"
    )
    assert {"data", "records_per_epoch", "scheduling_unit", "perform_initial_validation"} < set(found)


def test_fields_are_listed_once_and_only_where_nothing_better_can_be_said() -> None:
    found = problems(REFUSED["containers"])
    assert found["checkpoint_storage"].startswith("host_path, storage_path, type: an experiment does not say where a store is")
    assert found["resources.resource_pool"] == "there is no such field; write pool"
    assert found["searcher.stop_once"] == "there is no such field; write mode: stopping"
    assert found["entrypoint"].endswith("write `model_def:MyTrial`, and distributed.strategy: horovod")
    assert found["log_policies[0].action"] == "must be one of exclude_agent"
    assert found["workspace"] == "there is no such field; write resources.workspace"
    assert found["made_down"] == "there is no such field"
    assert [path for path, message in found.items() if "allowed are" in message] == ["made_up"]


def defined(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that a value may be."""
    if "$ref" in schema:
        return defined(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    nested = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *([schema["items"]] if "items" in schema else [])]
    return [*([schema] if "properties" in schema else []), *(found for item in nested for found in defined(item))]


def fields_of(section: str) -> set[str]:
    objects = [SCHEMA] if not section else defined(SCHEMA["properties"][section])
    return {name for item in objects for name in item["properties"]}


def test_every_field_of_determined_is_ours_or_refused_with_what_to_write() -> None:
    for section, names in CONFIG_FIELDS.items():
        ours = fields_of(section)
        for name in names.split():
            path = f"{section}.{name}" if section else name
            declared = section == "checkpoint_storage" and name in storage.DECLARED
            assert name in ours or path in determined_fields.FIELDS or declared, path
    methods = {kind["properties"]["name"].get("const") for kind in defined(SCHEMA["properties"]["searcher"])}
    assert set(SEARCH_METHODS.split()) <= methods | set(determined_fields.METHODS)
    for kind, names in HYPERPARAMETERS.items():
        assert set(names.split()) <= set(SCHEMA["$defs"][f"{kind.title()}Hyperparameter"]["properties"])


def test_what_is_to_be_written_instead_exists() -> None:
    for path, sentence in determined_fields.FIELDS.items():
        section = path.rpartition(".")[0]
        for written in re.findall(r"(?:write|set) ([a-z_.]+)", sentence):
            first, _, rest = written.partition(".")
            if rest:
                assert rest in fields_of(first), (path, written)
            else:
                assert first in fields_of(section) | fields_of(""), (path, written)
        if path.count(".") == 0:
            assert path not in fields_of(""), path
    for instead in determined_fields.METHODS.values():
        assert json.dumps(instead.partition(",")[0]) in json.dumps(SCHEMA)
