"""What a configuration becomes with a template and the defaults of its workspace, and from where each value comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.layers import BUILT_IN, COMMAND_LINE, Layer, canonical, combined
from tenuto.schemas.config.merging import BYTES_MAX, PATHS_CHARACTERS_MAX, VALUES_MAX, check_part, resolved
from tenuto.schemas.image_patterns import fits

SENT: dict[str, Any] = {
    "template": "fast",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1}, "net": {"width": 64}},
    "searcher": {"metric": "accuracy", "max_trials": 8},
    "resources": {"priority": 30},
    "checkpoint_storage": {"save_trial_best": 3},
}
TEMPLATE: dict[str, Any] = {
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1, "count": 3}, "net": {"width": 8, "depth": 2}},
    "searcher": {"name": "random", "max_trials": 100, "max_length": {"batches": 50}, "smaller_is_better": False},
    "labels": ["from", "template"],
    "resources": {"pool": "big"},
    "reproducibility": "exact",
}
DEFAULTS: dict[str, Any] = {
    "labels": ["default"],
    "searcher": {"name": "asha", "max_rungs": 9, "max_length": {"epochs": 3}},
    "resources": {"pool": "small", "priority": 60, "max_slots": 4},
    "checkpoint_storage": {"save_trial_latest": 2},
}


def layers(*documents: dict[str, Any]) -> list[Layer]:
    kinds = [("template", "fast", ""), ("defaults", "", "vision")]
    return [
        Layer(kind, name, workspace, version, "", document)  # type: ignore[arg-type]
        for version, ((kind, name, workspace), document) in enumerate(zip(kinds, documents, strict=False), start=1)
    ]


def test_what_is_more_specific_counts_and_each_value_knows_its_source() -> None:
    found = resolved(SENT, layers(TEMPLATE, DEFAULTS))
    config = found.config
    assert config.template is None
    assert config.labels == ["from", "template"], "a list is replaced"
    assert (config.resources.priority, config.resources.pool, config.resources.max_slots) == (30, "big", 4)
    assert (config.searcher.name, config.searcher.metric, config.searcher.max_length.batches) == ("random", "accuracy", 50)
    assert config.searcher.max_trials == 8  # type: ignore[union-attr]
    net = json.loads(config.to_json())["hyperparameters"]["net"]
    assert {name: item["val"] for name, item in net.items()} == {"width": 64, "depth": 2}
    assert (config.checkpoint_storage.save_trial_best, config.checkpoint_storage.save_trial_latest) == (3, 2)
    sources = {item.path: item.source for item in found.values({"searcher.max_trials", "hyperparameters.net"})}
    expected = {
        "labels": 1, "resources.pool": 1, "searcher.name": 1, "searcher.max_length": 1, "hyperparameters.net.depth": 1,
        "reproducibility.exact": 1, "resources.max_slots": 2, "checkpoint_storage.save_trial_latest": 2, "entrypoint": 0,
        "resources.priority": 0, "hyperparameters.lr": 0, "searcher.max_trials": COMMAND_LINE,
        "hyperparameters.net.width": COMMAND_LINE, "max_restarts": BUILT_IN, "name": BUILT_IN,
    }  # fmt: skip
    assert {path: sources[path] for path in expected} == expected
    assert "searcher.max_rungs" not in sources, "what belongs to another search method goes with it"
    assert found.count_of(2) == 2
    assert set(found.paths_of(2)) == {"resources.max_slots", "checkpoint_storage.save_trial_latest"}


def test_the_record_of_what_a_template_gave_is_bounded() -> None:
    long = {"hyperparameters": {"x" * 900: {f"h{number}": 1 for number in range(6_000)}}}
    assert len(canonical(check_part(long))) > BYTES_MAX // 2
    found = resolved(SENT, layers({**TEMPLATE, **long}))
    assert found.count_of(1) > 6_000
    assert sum(map(len, found.paths_of(1))) <= PATHS_CHARACTERS_MAX
    assert len(found.values()) == VALUES_MAX


def test_a_wrong_value_names_where_it_comes_from() -> None:
    wrong = {**TEMPLATE, "resources": {"pool": "big", "priority": 7}, "min_validation_period": {"batches": -1}}
    with pytest.raises(ConfigError) as caught:
        resolved({**SENT, "resources": {"priority": 1000}}, layers(wrong, {"max_restarts": -4}))
    by_path = {problem.path: problem.message for problem in caught.value.problems}
    assert by_path["min_validation_period.batches"].endswith("; it comes from template fast (version 1)")
    assert by_path["max_restarts"].endswith("; it comes from the defaults of workspace vision (version 2)")
    assert "comes from" not in by_path["resources.priority"]


def test_a_null_of_the_configuration_takes_away_what_the_template_says() -> None:
    sent = {**SENT, "min_checkpoint_period": None}
    found = resolved(sent, layers({**TEMPLATE, "min_checkpoint_period": {"batches": 5}}))
    assert found.config.min_checkpoint_period is None
    assert {item.path: item.source for item in found.values()}["min_checkpoint_period"] == 0


def test_a_mapping_and_a_value_of_one_name_are_not_mixed() -> None:
    merged, given = combined([{"a": 1, "b": {"x": 1}, "d": {}}, {"a": {"x": 2}, "b": 2, "c": {}, "d": {"e": 1}}])
    assert merged == {"a": 1, "b": {"x": 1}, "c": {}, "d": {"e": 1}}
    assert given == {("a",): 0, ("b", "x"): 0, ("c",): 1, ("d", "e"): 1}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ([], "must be a mapping"),
        ({}, "must be a mapping"),
        ({"template": "other"}, "names no other template"),
        ({"max_restart": 3}, "did you mean max_restarts"),
        ({"resources": {"priority": 200}}, "resources.priority"),
        ({"checkpoint_storage": {"bucket": "mine", "secret_key": "hush"}}, "names one"),
        ({"description": "x" * BYTES_MAX}, "at most 65536"),
        ({"hyperparameters": {"lr": float("nan")}}, "finite"),
        ({"labels": "word"}, "labels"),
        ({"environment": {"variables": {"TENUTO_TOKEN": "x"}}}, "is reserved"),
    ],
)
def test_a_part_that_can_never_be_right_is_refused(part: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_part(part)
    assert "hush" not in str(caught.value)


def test_a_part_may_lack_what_the_configuration_brings() -> None:
    for part in (TEMPLATE, DEFAULTS, {"environment": {"pull": "always"}}, {"searcher": {"max_trials": 4}}):
        assert check_part(part) == part


def test_patterns_of_images() -> None:
    allowed = ("python:3.12", "registry.example.com/team/*", "*/base:*@sha256:*", "a*b*")
    named = {
        "python:3.12": True,
        "python:3.12-slim": False,
        "docker.io/library/python:3.12": False,
        "registry.example.com/team/train:1": True,
        "registry.example.com.evil/team/train:1": False,
        "evil.example.com/registry.example.com/team/x": False,
        "x/base:1@sha256:00": True,
        "x/base:1": False,
        "ab": True,
        "a": False,
    }
    assert {name: any(fits(pattern, name) for pattern in allowed) for name in named} == named
    assert not fits("*a" * 200 + "b", "a" * 512)
