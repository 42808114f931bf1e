"""The first comparison of a search: never, by default, on next to nothing, and told beforehand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenuto.schemas.config import ExperimentConfig, derive
from tenuto.schemas.config.reading import validated
from tenuto.schemas.config.rungs import STEPS_MIN, doubts, told
from tenuto.services.searcher.methods import method_for

METHODS = ("sha", "hyperband", "asha", "adaptive_asha", "bohb")


def document(name: str, length: dict[str, int], aggregation: int = 1, **searcher: Any) -> dict[str, Any]:
    many = {} if name == "hyperband" else {"max_trials": 16}
    return {
        "entrypoint": "m:T",
        "searcher": {"name": name, "metric": "loss", "max_length": length} | many | searcher,
        "optimizations": {"aggregation_frequency": aggregation},
    }


def made(name: str, length: dict[str, int], aggregation: int = 1, **searcher: Any) -> ExperimentConfig:
    return validated(document(name, length, aggregation, **searcher))


def rungs(config: ExperimentConfig) -> tuple[int, ...]:
    """Of the longest bracket, as the search itself has them."""
    brackets = method_for(config.searcher, config.hyperparameters).brackets
    assert brackets == config.searcher.brackets
    return max((bracket.lengths for bracket in brackets), key=len)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batches", [1, 2, 8, 31, 32, 100, 160, 640, 1000, 30_000])
@pytest.mark.parametrize("aggregation", [1, 2, 8])
def test_no_default_compares_on_next_to_nothing(name: str, batches: int, aggregation: int) -> None:
    config = made(name, {"batches": batches}, aggregation)
    first, divisor = rungs(config)[0], config.searcher.divisor  # type: ignore[union-attr]
    assert first == batches or first >= min(STEPS_MIN * aggregation, batches // divisor)
    assert first == batches or first >= aggregation, "at least one step of the optimizer"
    assert not [line for line in doubts(config) if "says little" in line]


def test_rungs_by_hand() -> None:
    assert rungs(made("asha", {"batches": 160}, aggregation=2)) == (40, 160)
    assert rungs(made("asha", {"batches": 640})) == (40, 160, 640)
    assert rungs(made("asha", {"batches": 30_000})) == (117, 468, 1875, 7500, 30_000)
    assert rungs(made("hyperband", {"batches": 300})) == (33, 100, 300)
    assert rungs(made("asha", {"epochs": 16})) == (1, 4, 16), "an epoch is all the data"
    assert rungs(made("asha", {"batches": 640}, min_rung_length=10)) == (10, 40, 160, 640)


@pytest.mark.parametrize("name", METHODS)
def test_the_floor_is_on_record_and_read_again_with_the_same_meaning(name: str) -> None:
    config = made(name, {"batches": 640})
    assert '"min_rung_length":32' in config.to_json().decode()
    again = ExperimentConfig.from_json(config.to_json())
    assert again == config
    assert validated(again.model_dump(mode="json")) == config, "what is shown can be submitted again"


@pytest.mark.parametrize("name", METHODS)
def test_a_search_that_was_recorded_before_keeps_its_rungs(name: str) -> None:
    recorded = ExperimentConfig.model_validate(document(name, {"batches": 160}))
    assert b"min_rung_length" not in recorded.to_json()
    assert rungs(recorded)[0] <= 10
    # A fork is made from what the record says, where each field has its value.
    assert rungs(validated(recorded.model_dump(mode="json"))) == rungs(recorded)


def test_what_the_user_writes_counts_with_a_warning_where_it_is_small() -> None:
    config = made("asha", {"batches": 160}, aggregation=2, max_rungs=5)
    assert rungs(config) == (2, 10, 40, 160)
    [warning] = doubts(config)
    assert "first after 2 of 160 batches (1 optimizer step)" in warning
    assert "min_rung_length of 40" in warning
    assert doubts(made("asha", {"batches": 160}, max_rungs=2)) == []
    [alone] = doubts(made("asha", {"epochs": 3}))
    assert "has one rung here, 3 epochs" in alone
    assert doubts(made("random", {"batches": 1})) == []


def test_the_line_that_is_shown() -> None:
    assert told(made("asha", {"batches": 640})) == "40, 160, 640 batches; at most 16 trials"
    assert told(made("asha", {"batches": 640}), 1) == "40, 160, 640 batches; at most 1 trial"
    assert told(made("random", {"batches": 640})) == ""
    assert (
        told(made("hyperband", {"epochs": 9}, iterations=2))
        == "1, 3, 9 epochs; 6 brackets, which begin at 1, 3, 9; at most 34 trials"
    )


def recorded(config: ExperimentConfig) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(config.to_json())
    return {"name": "n", **document}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("before", [{"batches": 64}, {"batches": 640}, {"epochs": 16}])
@pytest.mark.parametrize(
    "change",
    [
        {}, {"max_length": {"batches": 8}}, {"max_length": {"batches": 640}}, {"max_length": {"epochs": 16}}, {"divisor": 2},
        {"max_rungs": 4}, {"min_rung_length": 3, "max_length": {"epochs": 9}},
    ],
)  # fmt: skip
def test_what_is_made_from_another_search_has_the_rungs_of_a_new_one(
    name: str, before: dict[str, int], change: dict[str, Any]
) -> None:
    """The shortest rung that was written down by default is one of the length and unit that it was made for."""
    forked = validated(derive.fork(recorded(made(name, before)), 3, 7, {"searcher": change}))
    new = made(name, **{"length": before} | {("length" if key == "max_length" else key): change[key] for key in change})
    assert forked.searcher == new.searcher


def test_a_shortest_rung_that_the_user_wrote_stays() -> None:
    for given in ({"min_rung_length": 10}, {"min_rung_length": 16, "max_rungs": 3}, {"max_rungs": 3}):
        first = made("asha", {"batches": 640}, **given)
        forked = validated(derive.fork(recorded(first), 3, 7, {"searcher": {"max_length": {"batches": 6400}}}))
        assert forked.searcher == first.searcher.model_copy(update={"max_length": forked.searcher.max_length})


@pytest.mark.parametrize(
    ("after", "rungs_then"),
    [
        ({"batches": 400}, (25, 100, 400)),
        ({"batches": 100}, (25, 100)),
        ({"batches": 20}, (5, 20)),
        ({"epochs": 16}, (1, 4, 16)),
    ],
)
def test_a_continuation_goes_on_at_the_rungs_of_its_trials(after: dict[str, int], rungs_then: tuple[int, ...]) -> None:
    """A new search over 400 batches would begin at 100. In another unit, or over less, there is nothing to go on with."""
    longer = derive.continuation(recorded(made("asha", {"batches": 100})), 3, 7, {"searcher": {"max_length": after}})
    assert rungs(validated(longer)) == rungs_then
