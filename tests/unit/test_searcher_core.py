"""The search's rules, step by step: what each event leads to, and why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tenuto.kernel.core import Core, Refused
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentTrialLimitsChanged
from tenuto.schemas.events.search import (
    ExperimentCanceled,
    ExperimentCompleted,
    ExperimentFailed,
    ExperimentStarted,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import TrialFailed, TrialFinished, ValidationReported
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.decide import DECISIONS_MAX
from tenuto.services.searcher.methods import UnknownRules, method_for
from tenuto.services.searcher.methods.asha import WAITING_SPARE, rung_lengths
from tenuto.services.searcher.state import FAILURES_AT_START_MAX, INVALID_MAX
from tests.support.search_world import Recorder, submitted

NAN = math.nan


class Search:
    """Short words for inputs, and for what was decided: `+3` requested, `3>16` extended, `3|` paused, `3x` stopped."""

    def __init__(self, _space: dict[str, Any] | None = None, **searcher: Any) -> None:
        self.recorder = Recorder()
        self.decided = self.recorder.put(submitted(searcher, space=_space))

    def say(self, data: EventData) -> str:
        self.decided = self.recorder.put(data)
        return self.words()

    def words(self) -> str:
        return " ".join(word(data) for data in self.decided)

    def validate(self, number: int, length: int, loss: float | None) -> str:
        metrics = {"other": 1.0} | ({} if loss is None else {"loss": loss})
        return self.say(ValidationReported(
            trial_id=f"1-{number}", allocation_id="a", batches=length, length=length, metrics=metrics
        ))  # fmt: skip

    def fail(self, number: int, final: bool = True) -> str:
        return self.say(TrialFailed(trial_id=f"1-{number}", allocation_id="a", error="boom", failures=6, final=final))

    def refuse(self, number: int) -> str:
        return self.say(TrialFailed(
            trial_id=f"1-{number}", allocation_id="a", error="too wide", failures=1, final=True, invalid_hyperparameters=True
        ))  # fmt: skip

    def limit(self, **limits: int) -> str:
        return self.say(ExperimentTrialLimitsChanged(experiment_id=1, **limits))

    def finish(self, *numbers: int) -> str:
        return " ".join(filter(None, [
            self.say(TrialFinished(trial_id=f"1-{n}", batches=0, length=0, checkpoint_id=None)) for n in numbers
        ]))  # fmt: skip

    def cancel(self) -> str:
        return self.say(ExperimentCancelRequested(experiment_id=1))


def word(data: EventData) -> str:
    number = getattr(data, "trial_id", "-").split("-")[1]
    match data:
        case TrialRequested():
            return f"+{number}"
        case TrialExtended():
            return f"{number}>{data.target_length}"
        case TrialPaused():
            return f"{number}|"
        case TrialStopped():
            return f"{number}x{data.outcome}"
        case _:
            return data.TYPE


def asha(trials: int, concurrent: int, divisor: int = 4, mode: str = "promotion", **more: Any) -> Search:
    return Search(
        name="asha", max_trials=trials, max_concurrent_trials=concurrent, divisor=divisor, mode=mode,
        **{"max_length": {"epochs": 16}} | more,
    )  # fmt: skip


def test_it_is_a_core() -> None:
    core: Core[Any] = SearcherCore()
    assert core.emits == {
        "ExperimentStarted", "TrialRequested", "TrialExtended", "TrialPaused", "TrialStopped", "ExperimentCompleted",
        "ExperimentFailed", "ExperimentCanceled",
    }  # fmt: skip
    assert not core.emits & core.consumes


def test_commands_are_refused() -> None:
    with pytest.raises(Refused):
        SearcherCore().decide(SearcherCore().initial(), object())  # type: ignore[arg-type]


def test_single_runs_one_trial_and_completes() -> None:
    search = Search(name="single")
    started, requested = search.decided
    assert isinstance(started, ExperimentStarted)
    assert started.method == "single"
    assert started.rule_version == 2
    assert isinstance(requested, TrialRequested)
    assert requested.target_length == 16
    assert search.validate(1, 8, 0.5) == ""
    assert search.validate(1, 16, 0.7) == "1xcompleted"
    assert search.finish(1) == "ExperimentCompleted"
    done = search.decided[-1]
    assert isinstance(done, ExperimentCompleted)
    assert (done.best_trial_id, done.best_metric, done.trials) == ("1-1", 0.5, 1), "the best of all validations"
    assert not search.recorder.state.experiments, "an ended experiment leaves the state"


def test_random_keeps_its_places_filled() -> None:
    search = Search(name="random", max_trials=4, max_concurrent_trials=2)
    assert search.words() == "ExperimentStarted +1 +2"
    assert search.validate(2, 16, 0.5) == "2xcompleted +3"
    assert search.validate(1, 16, 0.5) == "1xcompleted +4"
    assert search.finish(1, 2) == ""
    assert search.validate(3, 16, 0.4) == "3xcompleted"
    assert search.finish(3) == ""
    assert search.fail(4) == "4xfailed"
    assert search.finish(4) == "ExperimentCompleted"


def test_a_larger_metric_can_be_better() -> None:
    search = Search(name="random", max_trials=2, max_concurrent_trials=2, smaller_is_better=False)
    search.validate(1, 16, 0.9)
    search.validate(2, 16, 0.1)
    assert search.finish(1, 2) == "ExperimentCompleted"
    done = search.decided[-1]
    assert isinstance(done, ExperimentCompleted)
    assert (done.best_trial_id, done.best_metric) == ("1-1", 0.9)


def test_a_grid_too_large_fails_with_what_to_do() -> None:
    axis = {"type": "double", "minval": 0, "maxval": 1, "count": 200}
    search = Search({"a": axis, "b": axis, "c": axis}, name="grid")
    assert search.words() == "ExperimentStarted ExperimentFailed"
    failed = search.decided[-1]
    assert isinstance(failed, ExperimentFailed)
    assert "8,000,000 points" in failed.error
    assert "lower `count`" in failed.error


@pytest.mark.parametrize(
    ("max_length", "divisor", "max_rungs", "expected"),
    [
        (16, 4, 5, (1, 4, 16)),
        (5, 4, 5, (1, 5)),
        (1, 4, 5, (1,)),
        (3, 4, 5, (3,)),
        (1000, 4, 3, (62, 250, 1000)),
        (81, 3, 20, (1, 3, 9, 27, 81)),
        (10, 2, 1, (10,)),
    ],
)
def test_rung_lengths(max_length: int, divisor: int, max_rungs: int, expected: tuple[int, ...]) -> None:
    assert rung_lengths(max_length, divisor, max_rungs) == expected


def test_promotion_waits_then_promotes_the_best() -> None:
    search = asha(trials=16, concurrent=4)
    assert search.words() == "ExperimentStarted +1 +2 +3 +4"
    assert search.validate(1, 1, 0.4) == "1| +5"
    assert search.validate(2, 1, 0.3) == "2| +6"
    assert search.validate(3, 1, 0.5) == "3| +7"
    assert search.validate(4, 1, 0.6) == "4| 2>4", "four at the rung: the best one of them takes the free place"
    paused, extended = search.decided
    assert isinstance(paused, TrialPaused)
    assert paused.reason.numbers["rank"] == 4
    assert isinstance(extended, TrialExtended)
    assert extended.reason.rule == "asha.promotion"
    assert extended.reason.numbers == {
        "rung": 0, "length": 1, "rank": 1, "of": 4, "top": 1, "cut_off": 0.3, "metric": 0.3, "divisor": 4,
    }  # fmt: skip
    assert extended.reason.text == (
        "Rank 1 of 4 at rung 0 (1 epoch), loss 0.3: in the top 1/4 (the best 1), so it trains on to 4 epochs."
    )
    assert search.validate(5, 1, 0.1) == "5>4", "promoted at once: it keeps its slots"


def test_a_rank_is_taken_in_the_whole_rung() -> None:
    search = asha(trials=100, concurrent=4)
    for number, loss in enumerate([0.4, 0.3, 0.5, 0.6], start=1):
        search.validate(number, 1, loss)
    # Trial 2 went on from rank 1. With a better one the top 1/4 of five is that one; trial 2 keeps what it got.
    assert search.validate(5, 1, 0.2) == "5>4"
    # Six and seven trials: the top 1/4 is still one, and it has gone on already.
    assert search.validate(6, 1, 0.35) == "6| +8"
    assert search.validate(7, 1, 0.34) == "7| +9"
    # Eight: the top two are 5 and 2, both gone on; nobody who waits is due.
    assert search.validate(8, 1, 0.9) == "8| +10"


def test_the_highest_rung_is_served_first() -> None:
    search = asha(trials=64, concurrent=1, divisor=2, max_length={"epochs": 4})
    words = [search.validate(1, 1, 0.1), search.validate(2, 1, 0.2)]
    assert words == ["1| +2", "2| 1>2"]
    assert search.validate(1, 2, 0.1) == "1| +3"
    assert search.validate(3, 1, 0.05) == "3>2"
    assert search.validate(3, 2, 0.2) == "3| 1>4", "two at rung 1: its best goes before anything at rung 0"


def test_the_best_is_trained_to_the_full_length_even_with_few_trials() -> None:
    search = asha(trials=3, concurrent=3)
    assert search.validate(1, 1, 0.3) == "1|"
    assert search.validate(2, 1, 0.2) == "2|"
    assert search.validate(3, 1, 0.4) == "3| 2>4"
    extended = search.decided[-1]
    assert isinstance(extended, TrialExtended)
    assert extended.reason.rule == "asha.finalist"
    assert search.validate(2, 4, 0.2) == "2>16"
    assert search.validate(2, 16, 0.1) == "2xcompleted 1xearly_stopped 3xearly_stopped"
    stopped = search.decided[-1]
    assert isinstance(stopped, TrialStopped)
    assert stopped.reason.rule == "search_over"
    assert stopped.reason.numbers["rank"] == 3
    assert search.finish(1, 2) == ""
    assert search.finish(3) == "ExperimentCompleted"


def test_a_finalist_that_fails_is_replaced() -> None:
    search = asha(trials=3, concurrent=3)
    for number, loss in [(1, 0.3), (2, 0.2), (3, 0.4)]:
        search.validate(number, 1, loss)
    assert search.fail(2) == "2xfailed 1>4"
    assert search.validate(1, 4, NAN) == "1xearly_stopped 3>4"
    assert search.fail(3) == "3xfailed"
    assert search.finish(1, 2, 3) == "ExperimentCompleted"


@pytest.mark.parametrize("how", ["fails", "reports no number"])
def test_a_finalist_that_is_lost_at_the_full_length_is_replaced(how: str) -> None:
    search = asha(trials=2, concurrent=2, max_length={"epochs": 4})
    search.validate(1, 1, 0.3)
    assert search.validate(2, 1, 0.2) == "2>4"
    words = search.fail(2) if how == "fails" else search.validate(2, 4, NAN)
    assert words.endswith(" 1>4"), "the next best is trained to the full length instead"
    assert search.validate(1, 4, 0.1) == "1xcompleted"


def test_who_can_never_be_promoted_is_stopped() -> None:
    trials = 8
    search = asha(trials=trials, concurrent=1, max_length={"epochs": 4})
    promotable = trials // 4 + WAITING_SPARE
    words = [search.validate(number, 1, 0.1 * number) for number in range(1, promotable + 1)]
    assert "x" not in "".join(words)
    # Trial 1 trains on now, so a worse one takes no place before its result.
    assert search.recorder.state.experiments[1].active == 1
    more = []
    for _ in range(trials):
        experiment = search.recorder.state.experiments[1]
        running = [trial for _, trial in sorted(experiment.trials.items()) if trial.active]
        if not running:
            break
        trial = running[0]
        more.append(search.validate(trial.number, experiment.lengths[trial.rung], 0.1 * trial.number))
    stopped = [e.data for e in search.recorder.log if e.type == "TrialStopped" and e.data.reason.rule == "asha.no_chance"]  # type: ignore[attr-defined]
    assert [data.trial_id for data in stopped] == ["1-7", "1-8"]
    assert stopped[0].reason.numbers["rank_at_least"] == promotable + 1
    assert not any(isinstance(e.data, TrialPaused) and e.data.trial_id == "1-8" for e in search.recorder.log)


def test_stopping_goes_on_unless_outside_the_top() -> None:
    search = asha(trials=16, concurrent=2, divisor=2, mode="stopping")
    assert search.words() == "ExperimentStarted +1 +2"
    assert search.validate(1, 1, 0.5) == "1>2", "the first at a rung goes on"
    assert search.validate(2, 1, 0.6) == "2xearly_stopped +3"
    stopped = search.decided[0]
    assert isinstance(stopped, TrialStopped)
    assert stopped.reason.numbers == {
        "rung": 0, "length": 1, "rank": 2, "of": 2, "top": 1, "cut_off": 0.5, "metric": 0.6, "divisor": 2,
    }  # fmt: skip
    assert "outside the top 1/2 (the best 1)" in stopped.reason.text
    assert search.validate(3, 1, 0.4) == "3>2"
    assert search.validate(3, 2, 0.4) == "3>4"
    assert search.validate(1, 2, 0.5) == "1xearly_stopped +4"


@pytest.mark.parametrize("mode", ["promotion", "stopping"])
@pytest.mark.parametrize("loss", [NAN, math.inf, -math.inf, None])
def test_a_metric_that_is_no_number_counts_as_worst(mode: str, loss: float | None) -> None:
    search = asha(trials=8, concurrent=1, divisor=2, mode=mode)
    assert search.validate(1, 1, loss) == "1xearly_stopped +2"
    stopped = search.decided[0]
    assert isinstance(stopped, TrialStopped)
    assert stopped.reason.rule == "asha.worst"
    assert search.validate(2, 1, 1e308) == "2>2", "rank 1 of 2: even the worst number is better than none"


@pytest.mark.parametrize("loss", [NAN, None])
def test_a_full_length_without_a_number_is_complete(loss: float | None) -> None:
    search = Search(name="random", max_trials=2, max_concurrent_trials=1)
    assert search.validate(1, 16, loss) == "1xcompleted +2"
    assert search.validate(2, 16, 0.5) == "2xcompleted"
    assert search.finish(1, 2) == "ExperimentCompleted"


def test_a_failure_counts_as_worst_and_the_search_goes_on() -> None:
    search = asha(trials=8, concurrent=2, divisor=2)
    assert search.validate(1, 1, 0.5) == "1| +3"
    assert search.fail(2, final=False) == ""
    assert search.fail(2) == "2xfailed 1>2", "two at the rung, one of them failed: the other is in the top half"
    assert search.recorder.state.experiments[1].rungs[0].size == 2
    assert search.fail(2) == "", "a stopped trial fails no more"


def test_a_waiting_trial_can_fail() -> None:
    search = asha(trials=8, concurrent=2)
    assert search.validate(1, 1, 0.5) == "1| +3"
    assert search.fail(1) == "1xfailed"
    assert search.recorder.state.experiments[1].rungs[0].size == 1
    assert search.recorder.state.experiments[1].paused == 0


def test_repeated_and_late_reports_change_nothing() -> None:
    search = asha(trials=8, concurrent=2)
    search.validate(1, 1, 0.5)
    before = search.recorder.core.dump(search.recorder.state)
    assert search.validate(1, 1, 0.5) == ""
    assert search.validate(1, 3, 0.6) == ""
    assert search.validate(77, 1, 0.1) == ""
    assert search.finish(1) == "", "it is not stopped: nothing can have finished it"
    assert search.recorder.core.dump(search.recorder.state) == before


def test_events_of_unknown_experiments_pass_by() -> None:
    recorder = Recorder()
    assert recorder.put(ExperimentCancelRequested(experiment_id=9)) == []
    assert recorder.put(TrialFailed(trial_id="9-1", allocation_id="a", error="", failures=1, final=True)) == []
    assert recorder.state == recorder.core.initial()


def test_the_error_names_the_metric_and_those_reported() -> None:
    search = Search(name="random", max_trials=2, max_concurrent_trials=2)
    search.validate(1, 16, None)
    search.validate(2, 16, None)
    assert search.finish(1, 2) == "ExperimentFailed"
    failed = search.decided[-1]
    assert isinstance(failed, ExperimentFailed)
    assert failed.error == (
        "No trial reported the metric 'loss' that the searcher compares; reported were: other."
        " Set searcher.metric to one of these, or return that metric from the evaluation."
    )


def test_refused_hyperparameters_cost_nothing() -> None:
    search = Search(name="random", max_trials=2, max_concurrent_trials=1)
    assert search.refuse(1) == "1xfailed +2"
    stopped, asked = search.decided
    assert isinstance(stopped, TrialStopped)
    assert stopped.reason.rule == "invalid_hyperparameters"
    assert "too wide" in stopped.reason.text
    assert isinstance(asked, TrialRequested)
    assert search.refuse(2) == "2xfailed +3"
    assert search.validate(3, 16, 0.5) == "3xcompleted +4"
    assert search.validate(4, 16, 0.4) == "4xcompleted", "two trials counted, though four were asked for"
    assert search.finish(1, 2, 3, 4) == "ExperimentCompleted"


def test_a_refused_trial_leaves_its_rung_as_if_it_had_never_been_there() -> None:
    search = Search(name="sha", max_trials=4, max_concurrent_trials=4, max_length={"epochs": 4})
    assert search.refuse(2) == "2xfailed +5"
    assert search.validate(1, 1, 0.4) == "1|"
    search.validate(3, 1, 0.3)
    search.validate(4, 1, 0.6)
    assert search.validate(5, 1, 0.2).endswith("5>4"), "four were compared, not five"


def test_a_space_that_the_code_always_refuses_ends_the_search() -> None:
    search = Search(name="random", max_trials=3, max_concurrent_trials=1)
    number = 0
    while number < search.recorder.state.experiments[1].requested:
        number += 1
        search.refuse(number)
    assert INVALID_MAX < number <= INVALID_MAX + 3
    assert search.finish(*range(1, number + 1)) == "ExperimentFailed"


def test_limits_can_change_while_it_runs() -> None:
    search = Search(name="random", max_trials=4, max_concurrent_trials=2)
    assert search.limit(max_concurrent_trials=3) == "+3"
    assert search.limit(max_concurrent_trials=1) == "", "what runs is not stopped"
    assert search.validate(1, 16, 0.5) == "1xcompleted"
    assert search.validate(2, 16, 0.5) == "2xcompleted"
    assert search.validate(3, 16, 0.5) == "3xcompleted +4"
    assert search.limit(max_trials=6, max_concurrent_trials=2) == "+5"
    assert search.limit(max_trials=2) == ""
    assert search.validate(4, 16, 0.5) == "4xcompleted"
    assert search.validate(5, 16, 0.5) == "5xcompleted"
    assert search.finish(1, 2, 3, 4, 5) == "ExperimentCompleted"


def test_a_smaller_search_ends_when_nothing_is_left_to_do() -> None:
    search = asha(trials=100, concurrent=1, max_length={"epochs": 4})
    assert search.validate(1, 1, 0.4) == "1| +2"
    assert search.limit(max_trials=2) == ""
    assert search.validate(2, 1, 0.3) == "2>4", "the best of the two is trained to the full length"
    assert search.validate(2, 4, 0.3) == "2xcompleted 1xearly_stopped"
    assert search.finish(1, 2) == "ExperimentCompleted"


def test_a_larger_search_promotes_more() -> None:
    search = asha(trials=4, concurrent=2, max_length={"epochs": 4})
    search.limit(max_trials=400)
    assert search.recorder.state.experiments[1].rungs[0].best_max == 100 + WAITING_SPARE
    planned = Search(name="sha", max_trials=4, max_concurrent_trials=2)
    planned.limit(max_trials=400)
    assert planned.recorder.state.experiments[1].trials_max == 4, "its rungs are planned from the start"


def test_all_failed_fails_the_experiment() -> None:
    search = Search(name="single")
    assert search.fail(1) == "1xfailed"
    assert search.finish(1) == "ExperimentFailed"
    failed = search.decided[-1]
    assert isinstance(failed, ExperimentFailed)
    assert failed.error == "The trial failed. The last error was: boom"


def test_broken_code_does_not_use_up_all_trials() -> None:
    search = Search(name="random", max_trials=1000, max_concurrent_trials=2)
    failed = 0
    while "+" in search.words() or failed < search.recorder.state.experiments[1].requested:
        failed += 1
        search.fail(failed)
    assert failed == FAILURES_AT_START_MAX + 1
    assert search.finish(*range(1, failed + 1)) == "ExperimentFailed"


def test_one_validation_lets_the_search_go_on_after_failures() -> None:
    search = Search(name="random", max_trials=100, max_concurrent_trials=FAILURES_AT_START_MAX + 1)
    for number in range(1, FAILURES_AT_START_MAX):
        assert "+" in search.fail(number)
    assert "+" not in search.fail(FAILURES_AT_START_MAX)
    assert search.validate(FAILURES_AT_START_MAX + 1, 1, 0.5).startswith("+")


def test_cancel_stops_all_and_ends_when_the_last_has_left() -> None:
    search = asha(trials=16, concurrent=3)
    search.validate(1, 1, 0.5)
    assert search.cancel() == "1xcanceled 2xcanceled 3xcanceled 4xcanceled"
    assert search.cancel() == ""
    assert search.validate(2, 1, 0.1) == ""
    assert search.finish(1, 2, 3) == ""
    assert search.finish(4) == "ExperimentCanceled"
    canceled = search.decided[-1]
    assert isinstance(canceled, ExperimentCanceled)
    assert canceled.trials == 4


def test_decisions_of_one_cause_are_bounded() -> None:
    count = DECISIONS_MAX + 500
    search = Search(name="random", max_trials=10_000, max_concurrent_trials=count)
    assert len(search.decided) == DECISIONS_MAX
    search.recorder.checked = False
    search.validate(1, 16, 0.5)
    assert search.recorder.state.experiments[1].active == count, "the next event fills the rest"
    search.cancel()
    assert len(search.decided) == DECISIONS_MAX
    search.finish(1)
    assert search.recorder.state.experiments[1].active == 0


def test_unknown_rules_halt() -> None:
    config = submitted({"name": "single"}).config
    with pytest.raises(UnknownRules, match="rules version 99"):
        method_for(config.searcher, config.hyperparameters, 99)


def test_two_experiments_do_not_touch_each_other() -> None:
    recorder = Recorder()
    recorder.put(submitted({"name": "single"}, experiment_id=1))
    recorder.put(submitted({"name": "single"}, experiment_id=2))
    recorder.put(ExperimentCancelRequested(experiment_id=1))
    assert recorder.state.experiments[1].canceling
    assert not recorder.state.experiments[2].canceling
    assert [event.correlation_id for event in recorder.log if event.actor == "searcher/2"] == ["1", "1", "2", "2", "1"]
