"""A search that a user's own class decides: what the searcher makes of the operations that are on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.cli.errors import CliError
from tenuto.cli.search import load
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.request import ExperimentTrialLimitsChanged, SearchOperationsRequested
from tenuto.schemas.events.search import (
    ExperimentCompleted,
    ExperimentFailed,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.schemas.operations import Complete, Create, Extend, Fail, Operation, Stop
from tenuto.search import CustomSearcher, Told
from tenuto.services.searcher.core import SearcherCore
from tests.support.said import said
from tests.support.search_driver import NAN, Search
from tests.support.search_world import Recorder, submitted


class Custom(Search):
    def __init__(self, concurrent: int = 2, trials: int = 100, **more: Any) -> None:
        super().__init__(name="custom", max_trials=trials, max_concurrent_trials=concurrent, **more)
        self.causes = 0

    def ask(self, *operations: Operation) -> str:
        self.causes += 1
        return self.say(SearchOperationsRequested(
            experiment_id=1, searcher="my.py:Mine", cause_id=str(self.causes), cause_position=self.causes, operations=operations
        ))  # fmt: skip


def test_it_waits_for_its_class_and_starts_what_that_asks_for_when_a_place_is_free() -> None:
    search = Custom()
    assert search.words() == "ExperimentStarted"
    assert search.ask(*[Create(length=2)] * 3) == "+1 +2"
    first = search.decided[0]
    assert isinstance(first, TrialRequested)
    assert first.target_length == 2
    assert "Asked for by my.py:Mine on the event at position 1" in said(first)
    assert first.reason.numbers["cause_position"] == 1
    assert search.validate(1, 2, 0.5) == "1| +3"
    assert isinstance(search.decided[0], TrialPaused)
    assert "waits without slots" in said(search.decided[0])
    assert search.ask(Extend(trial=1, length=8)) == "", "both places are taken"
    assert search.validate(2, 2, 0.4) == "2| 1>8", "who goes on comes before new trials"
    assert search.ask(Stop(trial=2)) == "2xearly_stopped"


def test_a_running_trial_goes_on_at_once_and_the_full_length_is_the_end() -> None:
    search = Custom()
    search.ask(Create(length=2))
    assert search.ask(Extend(trial=1, length=16)) == "1>16"
    assert search.validate(1, 2, 0.5) == ""
    assert search.ask(Extend(trial=1, length=4)) == "", "a target never gets shorter"
    assert search.validate(1, 16, 0.5) == "1xcompleted"
    assert search.finish(1) == "", "its class may still ask for more"
    assert search.ask(Complete()) == "ExperimentCompleted"
    [ended] = search.decided
    assert isinstance(ended, ExperimentCompleted)
    assert ended.best_trial_id == "1-1"


def test_the_end_stops_whatever_runs_or_waits() -> None:
    search = Custom()
    search.ask(Create(length=2), Create(length=2), Create(length=2))
    search.validate(1, 2, NAN)
    assert search.ask(Complete()) == "1xearly_stopped 2xearly_stopped 3xearly_stopped"
    assert search.ask(Create(length=2), Extend(trial=1, length=4)) == ""
    assert search.finish(1, 2, 3) == "ExperimentCompleted"


def test_a_failed_search_says_why() -> None:
    search = Custom()
    search.ask(Create(length=2))
    search.ask(Fail(error="nothing works"))
    assert search.finish(1) == "ExperimentFailed"
    [ended] = search.decided
    assert isinstance(ended, ExperimentFailed)
    assert ended.error == "nothing works"
    assert Custom().ask(Complete()) == "ExperimentFailed"


def test_a_trial_that_fails_leaves_its_place_and_the_search_waits() -> None:
    search = Custom(concurrent=1)
    search.ask(Create(length=2), Create(length=2))
    assert search.fail(1) == "1xfailed +2"
    assert search.refuse(2) == "2xfailed"
    assert search.finish(1, 2) == ""
    assert search.ask(Extend(trial=2, length=4), Stop(trial=1)) == "", "both have ended"
    assert search.ask(Create(length=2)) == "+3"


def test_what_has_not_started_yet_is_changed_in_its_place() -> None:
    search = Custom(concurrent=1)
    search.ask(Create(length=2), Create(length=2), Create(length=2))
    assert search.ask(Stop(trial=2), Extend(trial=3, length=9)) == ""
    assert search.validate(1, 2, 0.5) == "1| +2 2xearly_stopped +3"
    third = search.decided[-1]
    assert isinstance(third, TrialRequested)
    assert third.target_length == 9


def test_what_a_create_leaves_out_is_drawn() -> None:
    search = Custom()
    search.ask(Create(length=1, hyperparameters={"lr": 0.05, "model.layers": 3}), Create(length=1))
    one, two = search.decided
    assert isinstance(one, TrialRequested)
    assert isinstance(two, TrialRequested)
    assert (one.hyperparameters["lr"], one.hyperparameters["model"]["layers"]) == (0.05, 3)
    assert one.hyperparameters["batch_size"] == 32
    assert two.hyperparameters["lr"] != 0.05


def test_a_copy_begins_from_a_checkpoint() -> None:
    search = Custom()
    search.ask(Create(length=1))
    search.ask(Create(length=2, source_checkpoint_id="c-1", parent=1))
    [copy] = search.decided
    assert isinstance(copy, TrialRequested)
    assert (copy.source_checkpoint_id, copy.parent_trial_id) == ("c-1", "1-1")


def test_limits_and_cancel_work_as_for_any_search() -> None:
    search = Custom(concurrent=1)
    search.ask(*[Create(length=2)] * 4)
    assert search.say(ExperimentTrialLimitsChanged(experiment_id=1, max_concurrent_trials=3)) == "+2 +3"
    assert search.cancel() == "1xcanceled 2xcanceled 3xcanceled"
    assert search.ask(Create(length=2)) == ""
    assert search.finish(1, 2, 3) == "ExperimentCanceled"


OPERATIONS = st.one_of(
    st.builds(Create, length=st.integers(1, 16)),
    st.builds(Extend, trial=st.integers(1, 8), length=st.integers(1, 16)),
    st.builds(Stop, trial=st.integers(1, 8)),
    st.just(Complete()),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.lists(OPERATIONS, min_size=1, max_size=4)),
        st.tuples(st.just("validate"), st.integers(1, 8), st.integers(1, 16), st.sampled_from([0.1, 0.2, NAN])),
        st.tuples(st.just("fail"), st.integers(1, 8)),
        st.tuples(st.just("refuse"), st.integers(1, 8)),
        st.tuples(st.just("finish"), st.integers(1, 8)),
        st.tuples(st.just("cancel")),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_any_operations_in_any_order_keep_the_invariants_and_replay(steps: list[Any]) -> None:
    search = Custom(trials=8)
    for name, *arguments in steps:
        if name == "ask":
            search.ask(*arguments[0])
        elif name == "validate":
            search.validate(*arguments)
        else:
            getattr(search, name)(*arguments)
        core = search.recorder.core
        assert core.dump(core.load(core.dump(search.recorder.state))) == core.dump(search.recorder.state)
    log = search.recorder.log
    stopped = [event.data.trial_id for event in log if isinstance(event.data, TrialStopped)]
    assert len(stopped) == len(set(stopped))
    assert verify_decisions(SearcherCore(), log).ok
    assert SearcherCore().dump(fold(SearcherCore(), log)) == SearcherCore().dump(search.recorder.state)


def documented(name: str) -> type[CustomSearcher]:
    """The class in docs/search.md."""
    text = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
    [block] = [part for part in text.split("```python\n")[1:] if f"class {name}(" in part]
    names: dict[str, Any] = {}
    exec(block.split("```")[0], names)
    kind: type[CustomSearcher] = names[name]
    return kind


def answer(data: Any) -> list[Any]:
    """Trials that do at once what they are told."""
    match data:
        case TrialRequested() | TrialExtended():
            number, length = int(data.trial_id.split("-")[1]), data.target_length
            return [ValidationReported(
                trial_id=data.trial_id, allocation_id="a", batches=length, length=length, metrics={"loss": number * 7 % 11}
            )]  # fmt: skip
        case TrialStopped():
            return [TrialFinished(trial_id=data.trial_id, batches=0, length=0, checkpoint_id=None)]
        case _:
            return []


def test_the_documented_class_searches_and_decides_the_same_when_told_again() -> None:
    request = submitted({"name": "custom", "max_trials": 100, "max_concurrent_trials": 3})
    recorder = Recorder()
    todo: list[Any] = [request]
    told = Told(documented("Best"), request)
    decided: dict[int, list[Operation]] = {}
    after = 0
    while todo:
        recorder.put(todo.pop(0))
        for event in recorder.log[after:]:
            todo += answer(event.data)
            if operations := told.tell(event):
                decided[event.position] = operations
                todo.insert(0, SearchOperationsRequested(
                    experiment_id=1, searcher="my.py:Best", cause_id=str(event.id), cause_position=event.position,
                    operations=tuple(operations),
                ))  # fmt: skip
            after = event.position
    assert recorder.log[-1].type == "ExperimentCompleted"
    assert len([event for event in recorder.log if event.type == "TrialRequested"]) == 8
    completed = [e.data for e in recorder.log if isinstance(e.data, TrialStopped) and e.data.outcome == "completed"]
    assert [data.trial_id for data in completed] == ["1-8"], "7 * 8 % 11 is the smallest"
    again = Told(documented("Best"), request)
    repeated = {event.position: again.tell(event) for event in recorder.log}
    assert {position: operations for position, operations in repeated.items() if operations} == decided


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("def on_validated(self, trial): pass", "Mine.on_validated would never be called; did you mean on_validation?"),
        ("def on_validation(self): pass", r"Mine.on_validation must take \(self, trial\)."),
        ("def on_trial_failed(self, trial, error): pass", r"must take \(self, trial, error, invalid_hyperparameters\)."),
    ],
)
def test_methods_of_a_class_that_would_never_be_called_are_refused(tmp_path: Path, method: str, sentence: str) -> None:
    path = tmp_path / "never_called.py"
    path.write_text(f"from tenuto.search import CustomSearcher\nclass Mine(CustomSearcher):\n    {method}\n")
    with pytest.raises(CliError, match=sentence):
        load(f"{path}:Mine")
