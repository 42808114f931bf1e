"""What holds of any search, whatever the order in which trials finish, fail, repeat themselves and are heard of late."""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import isfinite
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.config import HyperbandSearcher, PbtSearcher, ShaSearcher
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentTrialLimitsChanged
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFailed, TrialFinished, ValidationReported
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.methods import method_for
from tests.support.search_world import ENDS, SPACE, Faults, World, submitted

ACTOR = f"searcher/{SearcherCore().rule_version}"
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
CONSTRAINTS = {"dropout < 0.4": lambda h: h["dropout"] < 0.4, "model.layers + dropout < 4": lambda h: h["model"]["layers"] < 4}
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
    refuse=st.sampled_from([0.0, 0.0, 0.2]),
    limits_at=st.one_of(st.none(), st.none(), st.tuples(st.floats(0, 60), st.integers(1, 100), CONCURRENT)),
)
WORLDS = st.builds(
    World,
    request=SEARCHERS.map(lambda searcher: submitted(searcher, space=GRID if searcher["name"] == "grid" else None)),
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


def broken(world: World, log: Iterable[Event]) -> list[str]:
    """What a search must not do, judged from the events alone."""
    judge = Judge(world.request.config)
    for event in log:
        judge.see(event)
    if log[-1].type == "ExperimentCompleted" and not judge.limited and judge.config.name != "pbt":
        judge.expect(judge.counted == judge.trials_max, f"{judge.counted} trials instead of {judge.trials_max}")
    return judge.wrong


Place = tuple[int, int]
"""Bracket, and index of the rung in it."""


class Judge:
    """Keeps its own, naive account of the search: every rung as a plain list of all scores."""

    def __init__(self, config: Any) -> None:
        self.config = config.searcher
        method = method_for(self.config, config.hyperparameters)
        self.brackets, self.trials_max, self.concurrent_max = method.brackets, method.trials_max, method.concurrent_trials_max
        self.status: dict[str, str] = {}
        self.rung: dict[str, Place] = {}
        self.scores: dict[str, float] = {}
        self.rungs: defaultdict[Place, list[tuple[float, int]]] = defaultdict(list)
        self.sent: Counter[Place] = Counter()
        self.limited = False
        self.wrong: list[str] = []
        self.inputs: list[Event] = []

    @property
    def counted(self) -> int:
        replaced = self.config.name != "grid"
        return len(self.status) - replaced * sum(trial not in self.rung for trial in self.status)

    def length(self, place: Place) -> int:
        return self.brackets[place[0]].lengths[place[1]]

    def key(self, trial: str) -> tuple[float, int]:
        return (self.scores.get(trial, float("inf")), int(trial.split("-")[1]))

    def see(self, event: Event) -> None:
        if event.actor != ACTOR:
            self.inputs.append(event)
            return
        while self.inputs and self.inputs[0].position <= event.seen_position:
            self.learn(self.inputs.pop(0).data)
        self.judge(event.data)

    def learn(self, data: Any) -> None:
        trial = getattr(data, "trial_id", "")
        if isinstance(data, ValidationReported) and self.status.get(trial) == "running":
            place = self.rung[trial]
            if data.length >= self.length(place):
                value = data.metrics.get("loss", float("inf"))
                sign = 1 if self.config.smaller_is_better else -1
                self.scores[trial] = sign * value if isfinite(value) else float("inf")
                self.status[trial] = "reached"
                insort(self.rungs[place], self.key(trial))
        elif isinstance(data, ExperimentTrialLimitsChanged):
            self.limited = True
            self.trials_max = max(self.trials_max, data.max_trials or 0)
            self.concurrent_max = max(self.concurrent_max, data.max_concurrent_trials or 0)
        elif isinstance(data, TrialFailed) and data.invalid_hyperparameters:
            if self.status.get(trial) == "running":
                self.sent[self.rung.pop(trial)] -= 1
                self.status[trial] = "failing"
        elif isinstance(data, TrialFailed) and data.final:
            if self.status.get(trial) == "running":
                insort(self.rungs[self.rung[trial]], (float("inf"), int(trial.split("-")[1])))
            if self.status.get(trial) in ("running", "paused"):
                self.status[trial] = "failing"

    def judge(self, data: Any) -> None:
        trial = getattr(data, "trial_id", "")
        status = self.status.get(trial)
        if isinstance(data, TrialRequested):
            self.judge_request(trial, data)
        elif isinstance(data, TrialExtended):
            self.expect(status in ("reached", "paused"), f"{trial} goes on when it is {status}")
            self.judge_numbers(trial, data.reason.numbers)
            self.expect(isfinite(self.scores[trial]), f"{trial} goes on without a metric")
            self.judge_promotion(trial, data.reason.rule)
            bracket, index = self.rung[trial]
            self.rung[trial] = (bracket, index + 1)
            self.sent[self.rung[trial]] += 1
            self.expect(data.target_length == self.length(self.rung[trial]), f"{trial} skips a rung")
            self.status[trial] = "running"
        elif isinstance(data, TrialPaused):
            self.expect(status == "reached", f"{trial} pauses when it is {status}")
            self.judge_numbers(trial, data.reason.numbers)
            self.status[trial] = "paused"
        elif isinstance(data, TrialStopped):
            self.expect(status not in (None, "stopped"), f"{trial} is stopped when it is {status}")
            self.expect((data.outcome == "failed") == (status == "failing"), f"{trial} ends as {data.outcome}")
            self.judge_numbers(trial, data.reason.numbers)
            if data.outcome == "completed":
                self.expect(self.length(self.rung[trial]) == self.config.max_length.value, f"{trial} is completed too early")
            self.status[trial] = "stopped"
        active = sum(status == "running" for status in self.status.values())
        self.expect(active <= self.concurrent_max, "more trials at once than max_concurrent_trials")

    def judge_request(self, trial: str, data: TrialRequested) -> None:
        self.expect(trial not in self.status, f"{trial} is asked for twice")
        holds = [CONSTRAINTS[text](data.hyperparameters) for text in self.config.constraints]
        self.expect(all(holds), f"{trial} breaks a constraint")
        if trial == "1-1" and self.config.starting_points:
            self.expect(data.hyperparameters["dropout"] == 0.125, "the starting point is not the first")
        self.expect(data.hyperparameters.keys() == {"lr", "model", "dropout", "batch_size"}, "hyperparameters differ")
        lengths = self.brackets[data.bracket].lengths
        place = (data.bracket, lengths.index(data.target_length))
        if data.parent_trial_id is None:
            self.expect(place[1] == 0, f"{trial} starts at another length than the first rung")
            started = sum(rung[0] == data.bracket for rung in self.rung.values())
            self.expect(self.limited or started < self.brackets[data.bracket].trials, "more trials than the bracket has")
        else:
            before = (place[0], place[1] - 1)
            rung = self.rungs[before]
            parent = data.parent_trial_id
            self.expect(len(rung) == self.sent[before], f"{trial} is a copy before the generation is complete")
            top = max(1, int(self.config.population_size * self.config.truncate_fraction))
            best = [number for _, number in rung[:top]]
            self.expect(int(parent.split("-")[1]) in best, f"{trial} is a copy of one that is not among the best")
            self.expect(data.source_checkpoint_id == f"{parent}@{self.length(before)}", f"{trial} has another checkpoint")
        self.status[trial], self.rung[trial] = "running", place
        self.sent[place] += 1
        self.expect(self.counted <= self.trials_max, "more trials than max_trials")

    def judge_numbers(self, trial: str, numbers: dict[str, Any]) -> None:
        """Ranks that are recorded are those among all that ever came there, and so is the value compared with."""
        if numbers.get("rank") is None or numbers["metric"] is None:
            return
        rung = self.rungs[self.rung[trial]]
        self.expect(numbers["of"] == len(rung), f"{trial} is compared with {numbers['of']} of {len(rung)}")
        self.expect(numbers["rank"] == rung.index(self.key(trial)) + 1, f"{trial} has not rank {numbers['rank']}")
        if numbers.get("cut_off") is not None:
            sign = 1 if self.config.smaller_is_better else -1
            self.expect(sign * numbers["cut_off"] == rung[numbers["top"] - 1][0], f"{trial} has another cut-off")

    def judge_promotion(self, trial: str, rule: str) -> None:
        place = self.rung[trial]
        rung, key = self.rungs[place], self.key(trial)
        waiting = [
            self.key(name)
            for name, status in self.status.items()
            if self.rung.get(name) == place and status in ("paused", "reached") and name != trial
        ]
        stopping = getattr(self.config, "mode", "") == "stopping" or getattr(self.config, "stop_once", False)
        if isinstance(self.config, PbtSearcher):
            replaced = max(1, int(self.config.population_size * self.config.truncate_fraction))
            top = max(1, len(rung) - replaced)
        else:
            top = len(rung) // self.config.divisor
        if stopping or isinstance(self.config, (ShaSearcher, HyperbandSearcher)):
            top = max(1, top)
        if isinstance(self.config, (ShaSearcher, HyperbandSearcher, PbtSearcher)):
            self.expect(len(rung) == self.sent[place], f"{trial} goes on before its rung is complete")
        if rule != "asha.finalist":
            self.expect(rung.index(key) < top, f"{trial} goes on from outside the top")
        if not stopping:
            self.expect(all(key < other for other in waiting), f"{trial} goes on before a better one")

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)
