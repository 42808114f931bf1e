"""What holds of any search, whatever the order in which trials finish, fail, repeat themselves and are heard of late."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from math import isfinite
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.config import AshaSearcher
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFailed, TrialFinished, ValidationReported
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.methods import method_for
from tests.support.search_world import ENDS, Faults, World, submitted

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

CONCURRENT = st.integers(1, 12)
SEARCHERS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"name": st.just("single"), "max_length": st.just({"epochs": 3})}),
    st.fixed_dictionaries({"name": st.just("random"), "max_trials": st.integers(1, 30), "max_concurrent_trials": CONCURRENT}),
    st.fixed_dictionaries(
        {
            "name": st.just("asha"),
            "max_trials": st.integers(1, 60),
            "max_concurrent_trials": CONCURRENT,
            "divisor": st.integers(2, 4),
            "max_rungs": st.integers(1, 4),
            "mode": st.sampled_from(["promotion", "stopping"]),
            "smaller_is_better": st.booleans(),
            "max_length": st.builds(lambda n: {"batches": n}, st.integers(1, 30)),
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
)
WORLDS = st.builds(
    World,
    request=SEARCHERS.map(submitted),
    seed=st.integers(0, 2**32),
    slots=st.integers(1, 8),
    faults=FAULTS,
    lag_max=st.sampled_from([0, 0, 5, 50]),
)


@few
@given(WORLDS)
def test_every_search_keeps_the_rules_and_ends(world: World) -> None:
    log = world.run()
    assert broken(world, log) == []
    own = [event for event in log if event.actor == "searcher/1"]
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
    assert verdict.decisions == sum(event.actor == "searcher/1" for event in log)


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


def broken(world: World, log: Iterable[Event]) -> list[str]:
    """What a search must not do, judged from the events alone."""
    config = world.request.config.searcher
    method = method_for(config, world.request.config.hyperparameters)
    judge = Judge(method.lengths, method.trials_max, method.concurrent_trials_max, config)
    for event in log:
        judge.see(event)
    return judge.wrong


class Judge:
    """Keeps its own, naive account of the search: every rung as a plain list of all scores."""

    def __init__(self, lengths: tuple[int, ...], trials_max: int, concurrent_max: int, config: Any) -> None:
        self.lengths, self.trials_max, self.concurrent_max, self.config = lengths, trials_max, concurrent_max, config
        self.status: dict[str, str] = {}
        self.rung: dict[str, int] = {}
        self.scores: dict[str, float] = {}
        self.rungs: list[list[tuple[float, int]]] = [[] for _ in lengths]
        self.wrong: list[str] = []
        self.seen_upto = 0
        self.inputs: list[Event] = []

    def see(self, event: Event) -> None:
        if event.actor != "searcher/1":
            self.inputs.append(event)
            return
        while self.inputs and self.inputs[0].position <= event.seen_position:
            self.learn(self.inputs.pop(0).data)
        self.judge(event.data)

    def learn(self, data: Any) -> None:
        trial = getattr(data, "trial_id", "")
        if isinstance(data, ValidationReported) and self.status.get(trial) == "running":
            rung = self.rung[trial]
            if data.length >= self.lengths[rung]:
                value = data.metrics.get("loss", float("inf"))
                sign = 1 if self.config.smaller_is_better else -1
                score = sign * value if isfinite(value) else float("inf")
                self.status[trial], self.scores[trial] = "reached", score
                insort(self.rungs[rung], (score, int(trial.split("-")[1])))
        elif isinstance(data, TrialFailed) and data.final:
            if self.status.get(trial) == "running":
                insort(self.rungs[self.rung[trial]], (float("inf"), int(trial.split("-")[1])))
            if self.status.get(trial) in ("running", "paused"):
                self.status[trial] = "failing"

    def judge(self, data: Any) -> None:
        trial = getattr(data, "trial_id", "")
        status = self.status.get(trial)
        if isinstance(data, TrialRequested):
            self.expect(status is None, f"{trial} is asked for twice")
            self.expect(data.target_length == self.lengths[0], f"{trial} starts at another length than the first rung")
            self.status[trial], self.rung[trial] = "running", 0
            self.expect(len(self.status) <= self.trials_max, "more trials than max_trials")
            self.expect(data.hyperparameters.keys() == {"lr", "model", "dropout", "batch_size"}, "hyperparameters differ")
        elif isinstance(data, TrialExtended):
            self.expect(status in ("reached", "paused"), f"{trial} goes on when it is {status}")
            self.rung[trial] += 1
            self.expect(data.target_length == self.lengths[self.rung[trial]], f"{trial} skips a rung")
            self.expect(isfinite(self.scores[trial]), f"{trial} goes on without a metric")
            if isinstance(self.config, AshaSearcher):
                self.judge_promotion(trial, data.reason.rule)
            self.status[trial] = "running"
        elif isinstance(data, TrialPaused):
            self.expect(status == "reached", f"{trial} pauses when it is {status}")
            self.status[trial] = "paused"
        elif isinstance(data, TrialStopped):
            self.expect(status not in (None, "stopped"), f"{trial} is stopped when it is {status}")
            self.expect((data.outcome == "failed") == (status == "failing"), f"{trial} ends as {data.outcome}")
            if data.outcome == "completed":
                self.expect(self.rung[trial] == len(self.lengths) - 1, f"{trial} is completed below the full length")
            self.status[trial] = "stopped"
        active = sum(status == "running" for status in self.status.values())
        self.expect(active <= self.concurrent_max, "more trials at once than max_concurrent_trials")

    def judge_promotion(self, trial: str, rule: str) -> None:
        index = self.rung[trial] - 1
        rung = self.rungs[index]
        key = (self.scores[trial], int(trial.split("-")[1]))
        top = len(rung) // self.config.divisor
        if self.config.mode == "stopping":
            top = max(1, top)
        waiting = [
            (self.scores[name], int(name.split("-")[1]))
            for name, status in self.status.items()
            if self.rung[name] == index and status in ("paused", "reached") and name != trial
        ]
        if rule != "asha.finalist":
            self.expect(rung.index(key) < top, f"{trial} goes on from outside the top")
        if self.config.mode == "promotion":
            self.expect(all(key < other for other in waiting), f"{trial} goes on before a better one")

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)
