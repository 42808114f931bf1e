"""Experiments made from others: the configurations of reproductions, forks and continuations, and when results are equal."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tenuto.cli.errors import CliError
from tenuto.cli.origin import origin
from tenuto.cli.overrides import read_overrides, with_overrides
from tenuto.schemas.config import ExperimentConfig, derive
from tenuto.schemas.config.derive import OverrideError, thinned, with_validations
from tenuto.schemas.config.reading import parse_config
from tenuto.schemas.record import GIT_DIFF_CHARACTERS_MAX, VALIDATIONS_KEPT_MAX, TrialSource
from tenuto.services.gateway.trials.policies.results import (
    Saved,
    TrialValidation,
    file_pairs,
    first_difference,
    metric_pairs,
    metrics_equal,
    weights_equal,
)
from tenuto.workers.record.git import git_state


def recorded(**changes: Any) -> dict[str, Any]:
    config = {
        "name": "digits",
        "entrypoint": "model_def:Trial",
        "hyperparameters": {
            "lr": {"type": "log", "minval": -4, "maxval": -1},
            "optimizer": {"name": {"type": "categorical", "vals": ["sgd", {"kind": "adam"}]}, "momentum": 0.9},
            "layers": [8, 8],
        },
        "searcher": {"name": "asha", "metric": "loss", "max_length": {"epochs": 16}, "max_trials": 8},
    }
    document: dict[str, Any] = json.loads(ExperimentConfig.model_validate(config | changes).to_json())
    return document


def test_a_reproduction_is_one_trial_of_the_drawn_values() -> None:
    drawn = {"lr": 0.01, "optimizer": {"name": {"kind": "adam"}, "momentum": 0.9}, "layers": [8, 8]}
    raw = derive.reproduction(recorded(), 7, "3-2", drawn, seed=99, length=4)
    config = ExperimentConfig.model_validate(raw)
    assert (config.searcher.name, config.searcher.max_length.epochs) == ("single", 4)
    assert (config.reproducibility.experiment_seed, raw["searcher"]["trial_seed"]) == (7, 99)
    assert config.name == "digits (reproduction of 3-2)"
    assert raw["hyperparameters"] == {
        "lr": {"type": "const", "val": 0.01},
        "optimizer": {
            "name": {"type": "categorical", "vals": [{"kind": "adam"}]},
            "momentum": {"type": "const", "val": 0.9},
        },
        "layers": {"type": "const", "val": [8, 8]},
    }


def test_a_fork_changes_what_it_is_told_and_nothing_else() -> None:
    overrides = derive.nested({"hyperparameters.optimizer.momentum": 0.5, "searcher.max_trials": 3})
    forked = ExperimentConfig.model_validate(derive.fork(recorded(), 3, 7, overrides)).model_dump(mode="json")
    same = recorded()
    assert forked["hyperparameters"]["optimizer"]["momentum"]["val"] == 0.5
    assert forked["hyperparameters"]["lr"] == same["hyperparameters"]["lr"]
    assert forked["searcher"] == same["searcher"] | {"max_trials": 3}
    assert forked["reproducibility"]["experiment_seed"] == 7


def test_lengths_and_ranges_are_replaced_whole() -> None:
    changed = derive.merged(
        recorded(),
        derive.nested({"searcher.max_length.batches": 100, "hyperparameters.lr": {"type": "int", "minval": 1, "maxval": 2}}),
    )
    config = ExperimentConfig.model_validate(changed)
    assert config.searcher.max_length.batches == 100
    assert config.searcher.max_length.epochs is None
    assert json.loads(config.to_json())["hyperparameters"]["lr"]["type"] == "int"


def test_another_search_method_keeps_only_what_all_have() -> None:
    config = ExperimentConfig.model_validate(derive.merged(recorded(), {"searcher": {"name": "single"}}))
    assert (config.searcher.name, config.searcher.metric, config.searcher.max_length.epochs) == ("single", "loss", 16)


def test_a_continuation_refuses_what_would_make_other_trials() -> None:
    longer = derive.continuation(recorded(), 3, 7, {"searcher": {"max_length": {"epochs": 32}}})
    assert ExperimentConfig.model_validate(longer).searcher.max_length.epochs == 32
    for path in ("hyperparameters.lr", "entrypoint", "searcher.name", "reproducibility.experiment_seed"):
        with pytest.raises(OverrideError, match=r"^cannot change when an experiment is continued") as refused:
            derive.continuation(recorded(), 3, 7, derive.nested({path: 1}))
        assert refused.value.path == path


def test_a_continuation_may_go_into_an_image_and_out_of_it_again() -> None:
    variables = {"variables": {"WORD": "here"}}
    within = {"image": "python:3.11", "pull": "never", "mounts": ["/data"]}
    inside = derive.continuation({**recorded(), "environment": variables}, 3, 7, {"environment": within})
    assert inside["environment"] == within | variables
    outside = derive.continuation(inside, 4, 7, derive.nested({"environment.image": None}))
    assert ExperimentConfig.model_validate(outside).environment.variables == variables["variables"]
    for path in ("environment.variables.WORD", "environment.secrets.KEY"):
        with pytest.raises(OverrideError):
            derive.continuation(inside, 4, 7, derive.nested({path: "there"}))


def test_names_do_not_grow_with_each_generation() -> None:
    first = derive.fork(recorded(name="x" * 256), 3, 7, {})
    assert len(first["name"]) <= 256
    assert derive.fork({**recorded(), "name": "digits (fork of 3)"}, 4, 7, {})["name"] == "digits (fork of 4)"


@pytest.mark.parametrize("paths", [{"a.": 1}, {".a": 1}, {"a": 1, "a.b": 2}])
def test_paths_that_are_none(paths: dict[str, Any]) -> None:
    with pytest.raises(OverrideError):
        derive.nested(paths)


def test_overrides_read_values_as_they_look(tmp_path: Path) -> None:
    file = tmp_path / "changes.yaml"
    file.write_text("hyperparameters: {lr: 0.5}\nname: from file\n")
    found = read_overrides(["hyperparameters.batch_size=64", "name=by hand", "a.b=1e-3", "c={epochs: 5}", "d=true"], file)
    assert found == {
        "hyperparameters": {"lr": 0.5, "batch_size": 64}, "name": "by hand", "a": {"b": 0.001}, "c": {"epochs": 5}, "d": True,
    }  # fmt: skip
    assert read_overrides(["environment.variables.OMP_NUM_THREADS=2"]) == {"environment": {"variables": {"OMP_NUM_THREADS": "2"}}}
    with pytest.raises(CliError, match="has no value: write it as path=value"):
        read_overrides(["hyperparameters.batch_size"])


def test_a_configuration_with_overrides_is_read_as_one() -> None:
    text = b"""
name: x
entrypoint: model_def:T
hyperparameters: {batch_size: 32, lr: {type: log, minval: -3, maxval: -1}}
searcher: {name: single, metric: loss, max_length: {epochs: 2}}
"""
    config = parse_config(with_overrides(text, {"hyperparameters": {"batch_size": 64, "lr": 0.1}}))
    space = json.loads(config.to_json())["hyperparameters"]
    assert (space["batch_size"]["val"], space["lr"]["val"]) == (64, 0.1)
    assert with_overrides(text, {}) is text
    assert with_overrides(b"[unreadable", {"a": 1}) == b"[unreadable"


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True)


def test_the_state_of_git_is_put_on_record(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q", "-b", "main")
    assert git_state(tmp_path) is None, "no commit yet"
    (tmp_path / "model.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    git(tmp_path, "remote", "add", "origin", "https://ada:secret@example.org/r.git")
    clean = git_state(tmp_path)
    assert clean is not None
    assert (len(clean.commit), clean.branch, clean.remote, clean.diff) == (40, "main", "https://example.org/r.git", "")
    (tmp_path / "model.py").write_text("x = 2\n")
    (tmp_path / "new.py").touch()
    changed = git_state(tmp_path)
    assert changed is not None
    assert "-x = 1\n+x = 2\n" in changed.diff
    assert changed.untracked == ("new.py",)


def test_a_long_diff_is_cut_and_marked(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "big.txt").write_text("a\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "big.txt").write_text("b" * 79 + "\n" + ("b" * 79 + "\n") * (8 * GIT_DIFF_CHARACTERS_MAX // 80))
    found = git_state(tmp_path)
    assert found is not None
    assert (len(found.diff), found.diff_truncated) == (GIT_DIFF_CHARACTERS_MAX, True)


def test_the_command_line_is_recorded_without_credentials(tmp_path: Path) -> None:
    made = origin(tmp_path, {"hyperparameters": {"lr": 0.1}}, ["--url", "http://ada:pw@host", "exp", "create", "a b.yaml"])
    assert made.command_line == "tenuto --url http://(hidden)@host exp create 'a b.yaml'"
    assert made.overrides == {"hyperparameters.lr": "0.1"}


def test_metrics_are_compared_bit_for_bit_where_both_validated() -> None:
    a = [TrialValidation(10, {"loss": 0.1 + 0.2, "nan": math.nan}), TrialValidation(20, {"loss": 1.0})]
    b = [TrialValidation(10, {"loss": 0.3, "nan": math.nan}), TrialValidation(30, {"loss": 1.0})]
    pairs = metric_pairs(a, b)
    assert [(pair.name, pair.equal) for pair in pairs] == [("loss", False), ("nan", True)]
    assert (metrics_equal(pairs), first_difference(pairs)) == (False, 10)
    assert metrics_equal(metric_pairs(a, a)) is True
    assert metrics_equal(metric_pairs(a, [TrialValidation(11, {})])) is None


def test_weights_decide_and_the_rest_is_shown() -> None:
    a = [Saved(10, {"model.safetensors": "x"}), Saved(20, {"model.safetensors": "y", "state.pt": "s", "tenuto.json": "1"})]
    b = [Saved(20, {"model.safetensors": "y", "state.pt": "t", "tenuto.json": "2"})]
    pairs = file_pairs(a, b)
    assert [(pair.path, pair.equal) for pair in pairs] == [("model.safetensors", True), ("state.pt", False)]
    assert weights_equal(pairs) is True
    assert weights_equal(file_pairs([Saved(1, {"w.bin": "x"})], [Saved(1, {"w.bin": "y"})])) is False
    assert weights_equal(file_pairs(a, [])) is None


def test_a_checkpoint_takes_along_what_its_trial_had_reached_by_then() -> None:
    bare = TrialSource(trial_number=1, seed=1, checkpoint_id="7-1-1-80", location="file:///c", batches=80)
    found = [(20, 2, 0.5), (25, 2, 0.4), (80, 8, 0.1), (90, 9, 0.3)]
    kept = [(item.length, item.metric) for item in with_validations(bare, found).validations]
    assert kept == [(2, 0.5), (8, 0.1)], "the first at a length, and none that the checkpoint does not have"
    many = thinned(range(1, 5_001))
    assert (len(many) <= VALIDATIONS_KEPT_MAX, many[0], many[-1]) == (True, 1, 5_000)
    assert thinned([3, 4]) == [3, 4]
    assert thinned(range(100))[0] <= 1
