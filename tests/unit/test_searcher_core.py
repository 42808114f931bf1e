"""The search's rules, step by step: what each event leads to, and why."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.kernel.core import Core, Refused
from tenuto.schemas.events.request import ExperimentCancelRequested
from tenuto.schemas.events.search import (
    ExperimentCanceled,
    ExperimentCompleted,
    ExperimentFailed,
    ExperimentStarted,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import TrainingEnded, TrialFailed
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.decide import DECISIONS_MAX
from tenuto.services.searcher.methods import UnknownRules, method_for
from tenuto.services.searcher.state import FAILURES_AT_START_MAX, INVALID_MAX
from tests.support.said import said
from tests.support.search_driver import Search, asha
from tests.support.search_world import Recorder, submitted


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
    assert started.rule_version == 6
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
    assert "too wide" in said(stopped)
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
    assert search.recorder.state.experiments[1].rungs[0].best_max == 400
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
    assert [event.correlation_id for event in recorder.log if event.actor == f"searcher/{SearcherCore().rule_version}"] == [
        "1",
        "1",
        "2",
        "2",
        "1",
    ]


def test_a_script_that_calls_no_api_completes_the_search_of_one_trial() -> None:
    search = Search(name="single")
    assert search.words() == "ExperimentStarted +1"
    search.say(TrainingEnded(trial_id="1-1", allocation_id="1-1-1", batches=0, length=0, said="train.py ended"))
    [stopped] = search.decided
    assert isinstance(stopped, TrialStopped)
    assert (stopped.outcome, stopped.reason.rule) == ("completed", "ended_by_itself")
    assert search.finish(1) == "ExperimentCompleted"
    [over] = search.decided
    assert isinstance(over, ExperimentCompleted)
    assert (over.best_trial_id, over.best_metric, over.reason.rule) == (None, None, "nothing_reported")
