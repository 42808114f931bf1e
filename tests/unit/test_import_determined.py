# ruff: noqa: E501 - a rule and its result stand on one line each
"""Configurations in the forms of Determined, of all its versions, as they are rewritten: each rule, and each refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tenuto.cli.from_determined import Kind, convert
from tenuto.cli.from_determined.spaces import _own_points, _points
from tenuto.cli.main import app
from tenuto.schemas.config import IntHyperparameter
from tenuto.schemas.config.determined_fields import CARRIED_VARIABLE
from tenuto.schemas.config.reading import load_yaml, parse_config
from tenuto.services.searcher.methods.grid import point, points
from tests.support.determined import CONFIG_FIELDS

TRIAL = "{entrypoint: model_def:Net, searcher: {name: single, metric: loss, max_length: {batches: 10}}}"


def converted(text: str, base: str = TRIAL) -> dict[str, Any]:
    """The result of `base` with the fields of `text` in the place of its own; it must be accepted."""
    conversion = convert({**load_yaml(base), **(load_yaml(text) if text else {})})
    assert conversion.config is not None, conversion.notes
    parse_config(json.dumps(conversion.config))
    return conversion.config


def notes(text: str, kind: Kind, base: str = TRIAL) -> list[str]:
    conversion = convert({**load_yaml(base), **load_yaml(text)})
    assert (conversion.config is None) is (kind is Kind.REFUSED)
    return [f"{note.path}: {note.sentence}" for note in conversion.notes if note.kind is kind]


def test_what_is_the_same_is_carried_over_as_it_is() -> None:
    text = """
        name: mnist
        description: two words
        labels: [a, b]
        entrypoint: model_def:Net
        hyperparameters: {global_batch_size: 64, lr: {type: log, base: 10, minval: -4, maxval: -1.0}, net: {width: {type: int, minval: 1, maxval: 9}}}
        searcher: {name: random, metric: loss, smaller_is_better: false, max_length: {epochs: 3}, max_trials: 4, max_concurrent_trials: 2}
        resources: {slots_per_trial: 2, max_slots: 4, priority: 50, weight: 2}
        min_validation_period: {epochs: 1}
        min_checkpoint_period: {batches: 0}
        max_restarts: 2
        checkpoint_policy: all
        checkpoint_storage: {save_experiment_best: 1, save_trial_best: 2, save_trial_latest: 3}
        optimizations: {aggregation_frequency: 2, average_aggregated_gradients: false, mixed_precision: O0}
        reproducibility: {experiment_seed: 7}
    """
    given_ = load_yaml(text)
    found = converted("", text)
    assert found.pop("log_period") == {"batches": 100}
    del given_["min_checkpoint_period"], given_["optimizations"]["mixed_precision"]
    assert found == given_


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{scheduling_unit: 8}", {"log_period": {"batches": 8}}),
        ("{batches_per_step: 8, min_validation_period: 3}", {"log_period": {"batches": 8}, "min_validation_period": {"batches": 24}}),
        ("{min_validation_period: 3}", {"min_validation_period": {"batches": 300}}),
        ("{hyperparameters: {global_batch_size: 64}, min_validation_period: {records: 640}}", {"min_validation_period": {"batches": 10}}),
        ("{hyperparameters: {global_batch_size: {type: const, val: 64}}, min_checkpoint_period: {records: 100}}", {"min_checkpoint_period": {"batches": 1}}),
        ("{description: old form}", {"name": "old form"}),
        ("{project: vision, labels: null}", {"labels": ["vision"]}),
        ("{workspace: team, resources: {resource_pool: gpus, is_single_node: true}}", {"resources": {"pool": "gpus", "locality": "agent", "workspace": "team"}}),
        ("{resources: {slots: 2}}", {"resources": {"slots_per_trial": 2}}),
        ("{environment: {environment_variables: [A=1, B=x=y]}}", {"environment": {"variables": {"A": "1", "B": "x=y"}}}),
        ("{environment: {environment_variables: {cpu: [A=1], gpu: [A=1, B=2]}}}", {"environment": {"variables": {"A": "1", "B": "2"}}}),
        ("{log_policies: [{pattern: ECC, action: {type: exclude_node}}, {name: x, pattern: NaN, action: exclude_node}]}", {"log_policies": [{"pattern": "ECC", "action": "exclude_agent"}, {"pattern": "NaN", "action": "exclude_agent"}]}),
        ("{data: {url: x}, records_per_epoch: 5}", {"environment": {"variables": {CARRIED_VARIABLE: '{"data": {"url": "x"}, "records_per_epoch": 5}'}}}),
        ("{hyperparameters: {a: {}, b: {x.y: 1}, c: {type: const, val: {k: [1]}}}}", {"hyperparameters": {"a": {"type": "categorical", "vals": [{}]}, "b": {"type": "categorical", "vals": [{"x.y": 1}]}, "c": {"type": "categorical", "vals": [{"k": [1]}]}}}),
        ("{profiling: {enabled: false}, debug: false, bind_mounts: [], data: {}, internal: null}", {}),
    ],
)  # fmt: skip
def test_fields_that_are_written_otherwise(text: str, expected: dict[str, Any]) -> None:
    found = converted(text)
    if "hyperparameters" not in expected:
        found.pop("hyperparameters", None)
    assert found == {**converted(""), **expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{name: single, metric: x, max_length: {records: 640}}", {"name": "single", "metric": "x", "max_length": {"batches": 10}}),
        ("{name: single, metric: x, max_steps: 3}", {"name": "single", "metric": "x", "max_length": {"batches": 300}}),
        ("{name: random, metric: x, max_length: {epochs: 1}, max_trials: 5, max_concurrent_trials: 0}", {"name": "random", "metric": "x", "max_length": {"epochs": 1}, "max_trials": 5, "max_concurrent_trials": 5}),
        ("{name: adaptive_asha, metric: x, max_time: 64, time_metric: batches, max_trials: 9, divisor: 3.0}", {"name": "adaptive_asha", "metric": "x", "max_length": {"batches": 64}, "max_trials": 9, "divisor": 3, "mode": "standard", "stop_once": True}),
        ("{name: adaptive_asha, metric: x, max_length: {batches: 64}, max_trials: 16, mode: aggressive, max_rungs: 3, max_concurrent_trials: 0}", {"name": "adaptive_asha", "metric": "x", "max_length": {"batches": 64}, "max_trials": 16, "max_rungs": 3, "mode": "aggressive", "stop_once": False, "max_concurrent_trials": 16}),
        ("{name: async_halving, metric: x, max_length: {batches: 64}, max_trials: 100, num_rungs: 3, stop_once: true, max_concurrent_trials: 0}", {"name": "asha", "metric": "x", "max_length": {"batches": 64}, "max_trials": 100, "max_rungs": 3, "mode": "stopping", "max_concurrent_trials": 16}),
        ("{name: adaptive_simple, metric: x, max_length: {epochs: 64}, max_trials: 100}", {"name": "adaptive_asha", "metric": "x", "max_length": {"epochs": 64}, "max_trials": 100, "mode": "standard"}),
        ("{name: pbt, metric: x, population_size: 9, num_rounds: 3, length_per_round: {batches: 600}, replace_function: {truncate_fraction: 0.2}, explore_function: {resample_probability: 0.3, perturb_factor: 0.1}}", {"name": "pbt", "metric": "x", "max_length": {"batches": 1800}, "generations": 3, "population_size": 9, "truncate_fraction": 0.2, "resample_probability": 0.3, "perturb_factor": 0.1}),
    ],
)  # fmt: skip
def test_searchers(text: str, expected: dict[str, Any]) -> None:
    found = converted(
        f"{{hyperparameters: {{global_batch_size: 64, lr: {{type: double, minval: 0, maxval: 1}}}}, searcher: {text}}}"
    )
    assert found["searcher"] == expected


SCRIPT = "{entrypoint: python3 train.py, searcher: {name: single, metric: loss}}"


@pytest.mark.parametrize(
    ("given_", "expected", "strategy"),
    [
        ("model_def:Net", "model_def:Net", None),
        ("python3 -m determined.exec.harness model_def:Net", "model_def:Net", None),
        ("python3 -m determined.launch.torch_distributed --trial model_def:Net", "model_def:Net", None),
        ("python3 -m determined.launch.torch_distributed model_def:Net", "model_def:Net", None),
        ("python3 -m determined.launch.horovod --autohorovod --trial pkg.model_def:Net", "pkg.model_def:Net", "horovod"),
        ("python3 -m determined.launch.horovod python3 train.py --fast", "train.py --fast", "horovod"),
        ("python3 -m determined.launch.torch_distributed --nnodes 1 -- python3 -m determined.exec.harness a:B", "a:B", None),
        ("python -m determined.launch.tensorflow -- python3 train.py", "train.py", "multi_worker_mirrored"),
        ("python3 -u train.py -x 'two words'", "train.py -x 'two words'", None),
        (["python3", "-m", "pkg.train", "--fast"], "python3 -m pkg.train --fast", None),
        (["python3", "-m", "determined.launch.torch_distributed", "python3", "-m", "pkg.train"], "python3 -m pkg.train", None),
    ],
)
def test_entrypoints(given_: Any, expected: str, strategy: str | None) -> None:
    found = converted(json.dumps({"entrypoint": given_}))
    assert found["entrypoint"] == expected
    assert found.get("distributed") == (None if strategy is None else {"strategy": strategy})


def test_a_script_that_says_itself_how_long_it_trains() -> None:
    found = converted("", SCRIPT)
    assert found["searcher"]["max_length"] == {"epochs": 1}
    assert json.loads(found["environment"]["variables"][CARRIED_VARIABLE]) == {"length": "script"}
    assert "log_period" not in found
    assert converted("{searcher: {name: single, metric: loss, max_length: 20}}", SCRIPT)["searcher"]["max_length"] == {
        "batches": 20
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{bind_mounts: [{host_path: /a, container_path: /b}]}", "bind_mounts[0]: there is no container: your code finds /b at /a, its place on the agent; change that path in it"),
        ("{checkpoint_storage: {type: s3, bucket: x, secret_key: y}}", "checkpoint_storage.type, bucket, secret_key: the operator declares stores (`tenuto store create`), and an experiment names one with checkpoint_storage.store; without it checkpoints go into the cluster's own directory"),
        ("{environment: {image: x}}", "environment.image: a trial runs in the Python environment of its agent; to run it in an image, set environment.image here"),
        ("{environment: {environment_variables: [HOME]}}", "environment.environment_variables[0]: HOME has no value; an agent's own variables are not handed to trials"),
        ("{environment: {environment_variables: {cpu: [A=1], cuda: [A=2]}}}", "environment.environment_variables.cpu: A has another value here; a trial has one set of variables on any slots"),
        ("{log_policies: [{pattern: x, action: cancel_retries}]}", "log_policies[0]: a trial is not given up for a line that it prints; raise an error, and set max_restarts: 0 for all of them"),
        ("{optimizations: {mixed_precision: O1}}", "optimizations.mixed_precision: that is a level of NVIDIA's apex, which Tenuto does not use; mixed_precision: fp16 or bf16 is torch.autocast"),
        ("{searcher: {name: single, metric: x, max_length: {batches: 1}, source_trial_id: 4}}", "searcher.source_trial_id: checkpoints stay in Determined's storage; train there to the end, or load the weights in your own code"),
        ("{perform_initial_validation: true}", "perform_initial_validation: a trial is not validated before it trains"),
        ("{profiling: {enabled: true}}", "profiling: use your framework's profiler"),
    ],
)  # fmt: skip
def test_fields_that_are_left_out(text: str, expected: str) -> None:
    assert notes(text, Kind.LEFT_OUT) == [expected]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{entrypoint: null}", "entrypoint"),
        ("{entrypoint: [torchrun, train.py]}", "entrypoint"),
        ("{entrypoint: python3 -m determined.launch.deepspeed python3 train.py}", "entrypoint"),
        ("{entrypoint: \"python3 'train.py\"}", "entrypoint"),
        ("{entrypoint: model_def:Net --fast}", "entrypoint"),
        ("{searcher: {name: adaptive, metric: x, budget: {epochs: 3}, max_length: {epochs: 1}}}", "searcher.budget"),
        ("{searcher: {name: custom, metric: x, unit: batches}}", "searcher.name"),
        ("{searcher: {name: other, metric: x}}", "searcher.name"),
        ("{searcher: {name: single, metric: x}}", "searcher.max_length"),
        ("{searcher: {name: adaptive_asha, metric: x, max_time: 3, time_metric: minutes, max_trials: 2}}", "searcher.time_metric"),
        ("{searcher: {name: adaptive_asha, metric: x, max_length: {batches: 9}, max_trials: 2, divisor: 2.5}}", "searcher.divisor"),
        ("{searcher: {name: adaptive_asha, metric: x, max_length: {batches: 9}, max_trials: 2, bracket_rungs: [2]}}", "searcher.bracket_rungs"),
        ("{searcher: {name: single, metric: x, max_length: {records: 9}}}", "searcher.max_length"),
        ("{searcher: {name: single, metric: x, max_length: {hours: 9}}}", "searcher.max_length"),
        ("{searcher: {name: grid, metric: x, max_length: {batches: 9}}, hyperparameters: {a: {type: int, minval: 1, maxval: 2}}}", "hyperparameters.a.count"),
        ("{hyperparameters: {a: {type: normal, mu: 1}}}", "hyperparameters.a.type"),
        ("{hyperparameters: {a: {type: double, minval: 1}}}", "hyperparameters.a"),
        ("{resources: {slots_per_trial: many}}", "resources.slots_per_trial"),
        ("{no_such_field: 1}", "no_such_field"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, path: str) -> None:
    assert [line.split(": ")[0] for line in notes(text, Kind.REFUSED)] == [path]


def test_a_search_by_script_needs_its_length() -> None:
    text = "{searcher: {name: adaptive_asha, metric: x, max_trials: 2}}"
    assert notes(text, Kind.REFUSED, SCRIPT) == ["searcher.max_length: is required: trials are compared at parts of it"]


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 12))
def test_a_grid_of_whole_numbers_has_the_points_of_determined(low: int, width: int, count: int) -> None:
    axis = IntHyperparameter(type="int", minval=low, maxval=low + width, count=count)
    number = points(axis)
    assert [point(axis, index) for index in range(number)] == _own_points(low, low + width, number)
    space = {"n": {"type": "int", "minval": low, "maxval": low + width, "count": count}}
    searcher = {"name": "grid", "metric": "x", "max_length": {"batches": 1}}
    found = convert({"entrypoint": "a:B", "hyperparameters": space, "searcher": searcher}).config
    assert found is not None
    leaf = found["hyperparameters"]["n"]
    if leaf["type"] == "categorical":
        assert leaf["vals"] == _points(low, low + width, number)
    else:
        assert _points(low, low + width, number) == _own_points(low, low + width, number)


def test_halves_are_rounded_as_there() -> None:
    assert _points(-2, 1, 3) == [-2, -1, 1]
    assert _points(1, 4, 1) == [3]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**30) | st.floats() | st.text(max_size=6) | st.sampled_from(["single", "grid", "adaptive_asha", "async_halving", "pbt", "int", "log"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "type", "val", "vals", "minval", "maxval", "count", "batches", "records", "max_length", "max_trials", "divisor", "num_rungs", "max_concurrent_trials", "pattern", "x"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from([*CONFIG_FIELDS[""].split(), "x"]), ANYTHING, max_size=8))
@example({"hyperparameters": {"x": {"type": []}}})
def test_no_document_breaks_the_conversion(document: dict[str, Any]) -> None:
    conversion = convert({**load_yaml(TRIAL), **document})
    assert conversion.config is not None or any(note.kind is Kind.REFUSED for note in conversion.notes)
    if conversion.config is not None:
        parse_config(json.dumps(conversion.config))


def test_no_secret_is_shown() -> None:
    text = "{environment: {registry_auth: {password: hush}}, checkpoint_storage: {secret_key: hush}, integrations: {pachyderm: {token: hush}}}"
    assert "hush" not in str(convert({**load_yaml(TRIAL), **load_yaml(text)}).notes)


def test_the_command(tmp_path: Path) -> None:
    config, out = tmp_path / "const.yaml", tmp_path / "out.yaml"
    config.write_text("entrypoint: model_def:Net\nsearcher: {name: single, metric: loss, max_length: {batches: 10}}\n")
    run = CliRunner().invoke(app, ["import", "determined", str(config)])
    assert run.exit_code == 0
    assert yaml.safe_load(run.stdout)["entrypoint"] == "model_def:Net"
    parse_config(run.stdout)
    assert "scheduling_unit: changed: is 100 where it is not given" in run.stderr
    model = tmp_path / "model"
    model.mkdir()
    (model / "model_def.py").write_text("from determined.pytorch import PyTorchTrial, deepspeed\nimport model_hub.huggingface\n")
    (model / "startup-hook.sh").write_text("pip install x\n")
    run = CliRunner().invoke(app, ["import", "determined", str(config), str(model), "-o", str(out)])
    assert run.exit_code == 3
    assert "model_def.py:1: left out: imports determined.pytorch.deepspeed" in run.stderr
    assert "startup-hook.sh: left out: is not run" in run.stderr
    parse_config(out.read_bytes())
    config.write_text("entrypoint: model_def:Net\nsearcher: {name: custom, metric: loss}\n")
    run = CliRunner().invoke(app, ["import", "determined", str(config), "--json"])
    assert run.exit_code == 1
    assert json.loads(run.stdout)["config"] is None
    for text in ("entrypoint: [", "- 1", "entrypoint: !!python/object:x {}"):
        config.write_text(text)
        assert CliRunner().invoke(app, ["import", "determined", str(config)]).exit_code == 1
