"""Invariants of any search, whatever the order in which trials finish, fail, and send repeated or late reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.events.trial import TrialFinished
from tenuto.services.searcher.core import SearcherCore
from tests.support.example_plugins import importable
from tests.support.search_judge import ACTOR, CONSTRAINTS, broken
from tests.support.search_world import ENDS, SPACE, Faults, World, source, submitted

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

CONCURRENT = st.integers(1, 12)
LENGTH = st.builds(lambda n: {"batches": n}, st.integers(1, 30))
HALVING: dict[str, st.SearchStrategy[Any]] = {
    "max_trials": st.integers(1, 60),
    "max_concurrent_trials": CONCURRENT,
    "divisor": st.integers(2, 4),
    "max_rungs": st.integers(1, 4),
    "smaller_is_better": st.booleans(),
    "max_length": LENGTH,
}
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "constraints": st.sampled_from([[], [], *([text] for text in CONSTRAINTS), list(CONSTRAINTS)]),
    "starting_points": st.sampled_from([[], [], [{"dropout": 0.125}]]),
}
HALVING |= DRAWN
GRID = SPACE | {name: SPACE[name] | {"count": 3} for name in ("lr", "dropout")}  # type: ignore[operator]
SEARCHERS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"name": st.just("grid"), "max_concurrent_trials": CONCURRENT}),
    st.fixed_dictionaries({"name": st.just("single"), "max_length": st.just({"epochs": 3})}),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["random", "sobol"]), "max_trials": st.integers(1, 30), "max_concurrent_trials": CONCURRENT}
        | DRAWN
    ),
    st.fixed_dictionaries({"name": st.just("asha"), "mode": st.sampled_from(["promotion", "stopping"])} | HALVING),
    st.fixed_dictionaries({"name": st.just("bohb"), "candidates": st.just(4)} | HALVING),
    st.fixed_dictionaries({"name": st.just("sha")} | HALVING),
    st.fixed_dictionaries(
        {
            "name": st.just("adaptive_asha"),
            "mode": st.sampled_from(["conservative", "standard", "aggressive"]),
            "stop_once": st.booleans(),
        }
        | HALVING
    ),
    st.fixed_dictionaries(
        {
            "name": st.just("hyperband"),
            "iterations": st.integers(1, 2),
            "max_concurrent_trials": CONCURRENT,
            "divisor": st.integers(2, 4),
            "max_rungs": st.integers(1, 4),
            "max_length": LENGTH,
        }
    ),
    st.fixed_dictionaries(
        {
            "name": st.just("median_stopping"),
            "max_trials": st.integers(1, 30),
            "max_concurrent_trials": CONCURRENT,
            "max_length": LENGTH,
            "settings": st.fixed_dictionaries({"parts": st.integers(2, 4), "grace": st.integers(1, 6)}),
        }
        | DRAWN
    ),
    st.fixed_dictionaries(
        {
            "name": st.just("pbt"),
            "population_size": st.integers(2, 12),
            "generations": st.integers(1, 5),
            "truncate_fraction": st.sampled_from([0.1, 0.2, 0.5]),
            "max_concurrent_trials": CONCURRENT,
            "max_length": LENGTH,
        }
    ),
)
FAULTS = st.builds(
    Faults,
    fail=st.sampled_from([0.0, 0.2, 0.9]),
    nan=st.sampled_from([0.0, 0.2, 1.0]),
    missing=st.sampled_from([0.0, 0.2, 1.0]),
    repeat=st.sampled_from([0.0, 0.5]),
    late=st.sampled_from([0.0, 0.5]),
    early=st.sampled_from([0.0, 0.5]),
    cancel_at=st.one_of(st.none(), st.none(), st.floats(0, 60)),
    end=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    unsaved=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    refuse=st.sampled_from([0.0, 0.0, 0.2]),
    limits_at=st.one_of(st.none(), st.none(), st.tuples(st.floats(0, 60), st.integers(1, 100), CONCURRENT)),
)
REACHED = st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), max_size=4, unique_by=lambda item: item[0]).map(sorted)
SOURCES = st.one_of(
    st.just([]),
    st.dictionaries(st.integers(1, 20), st.tuples(st.integers(1, 40), REACHED), max_size=12).map(
        lambda found: [source(number, length, *reached) for number, (length, reached) in found.items()]
    ),
)
"""Of an experiment that goes on with an earlier one: its checkpoints are anywhere, also beyond the full length."""
WORLDS = st.builds(
    World,
    request=st.tuples(SEARCHERS, SOURCES).map(
        lambda made: submitted(made[0], space=GRID if made[0]["name"] == "grid" else None, sources=made[1])
    ),
    seed=st.integers(0, 2**32),
    slots=st.integers(1, 8),
    faults=FAULTS,
    lag_max=st.sampled_from([0, 0, 5, 50]),
)


@pytest.fixture(scope="module", autouse=True)
def _installed(example_plugins: Path) -> Iterator[None]:
    """The package of `median_stopping`."""
    with importable(example_plugins):
        yield


@few
@given(WORLDS)
def test_every_search_keeps_the_rules_and_ends(world: World) -> None:
    log = world.run()
    assert broken(world, log) == []
    own = [event for event in log if event.actor == ACTOR]
    assert own[0].type == "ExperimentStarted"
    assert [event.type for event in own if event.type in ENDS] == [own[-1].type], "it ends once, and then is silent"
    assert not world.recorder.state.experiments, "memory is given back"
    requested = {event.data.trial_id for event in own if isinstance(event.data, TrialRequested)}
    finished = {event.data.trial_id for event in log if isinstance(event.data, TrialFinished)}
    assert requested == finished, "no trial is lost"


@few
@given(WORLDS)
def test_replay_is_the_same_byte_for_byte(world: World) -> None:
    log = world.run()
    core = SearcherCore()
    assert core.dump(fold(core, log)) == core.dump(world.recorder.state)
    verdict = verify_decisions(core, log)
    assert verdict.ok, verdict.divergences
    assert verdict.decisions == sum(event.actor == ACTOR for event in log)


@few
@given(WORLDS, st.randoms(use_true_random=False))
def test_a_snapshot_at_any_point_changes_nothing(world: World, draw: Any) -> None:
    log = world.run()
    core = SearcherCore()
    cut = draw.randint(0, len(log))
    state = core.initial()
    for event in log[:cut]:
        state = core.evolve(state, event)
    data = core.dump(state)
    again = core.load(data)
    assert core.dump(again) == data
    assert again == state
    core.check(again)
    for event in log[cut:]:
        again, state = core.evolve(again, event), core.evolve(state, event)
        if event.type in core.consumes:
            assert core.decide(again, event) == core.decide(state, event)
    assert core.dump(again) == core.dump(state)


@few
@given(WORLDS)
def test_an_input_again_decides_nothing(world: World) -> None:
    """Whatever was decided on is folded; the same event once more finds nothing to do."""
    core = SearcherCore()
    world.lag_max = 0
    log = world.run()
    state = core.initial()
    for at, event in enumerate(log):
        state = core.evolve(state, event)
        settled = at + 1 == len(log) or log[at + 1].type in core.consumes
        if event.type in core.consumes and settled and event.type != "ExperimentSubmitted":
            repeated = core.evolve(state, event)
            assert core.decide(repeated, event) == []
            assert core.dump(repeated) == core.dump(state)


@few
@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 100),
    st.integers(0, 100),
    st.sampled_from(["random", "asha"]),
)
def test_the_order_of_arrival_changes_no_hyperparameter(seed: int, one: int, other: int, name: str) -> None:
    def drawn(world_seed: int, slots: int) -> dict[int, tuple[Any, int]]:
        request = submitted({"name": name, "max_trials": 20, "max_concurrent_trials": 5}, seed=seed)
        log = World(request, seed=world_seed, slots=slots, faults=Faults(fail=0.2)).run()
        asked = [event.data for event in log if isinstance(event.data, TrialRequested)]
        return {data.trial_number: (data.hyperparameters, data.seed) for data in asked}

    first, second = drawn(one, 1), drawn(other, 5)
    common = first.keys() & second.keys()
    assert common
    assert {number: first[number] for number in common} == {number: second[number] for number in common}
