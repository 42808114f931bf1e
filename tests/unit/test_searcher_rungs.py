"""Rungs of successive halving: who is promoted, who waits, who stops."""

from __future__ import annotations

import math

import pytest

from tenuto.schemas.config.brackets import rung_lengths
from tenuto.schemas.events.search import (
    TrialExtended,
    TrialPaused,
    TrialStopped,
)
from tenuto.services.searcher.methods.asha import WAITING_SPARE
from tests.support.said import said
from tests.support.search_driver import NAN, Search, asha


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
        "metric_name": "loss", "unit": "epochs",
    }  # fmt: skip
    assert said(extended) == (
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
    assert stopped[0].reason.numbers["rank"] == promotable + 1
    assert not any(isinstance(e.data, TrialPaused) and e.data.trial_id == "1-8" for e in search.recorder.log)


def test_stopping_goes_on_unless_outside_the_top() -> None:
    search = asha(trials=16, concurrent=2, divisor=2, mode="stopping")
    assert search.words() == "ExperimentStarted +1 +2"
    assert search.validate(1, 1, 0.5) == "1| +3", "the first at a rung is compared with nobody: it waits"
    paused = search.decided[0]
    assert isinstance(paused, TrialPaused)
    assert said(paused) == (
        "Rank 1 of 1 at rung 0 (1 epoch), loss 0.5: the first one there, so it waits without slots for another one to be compared"
        " with."
    )
    assert paused.reason.numbers == {
        "rung": 0, "length": 1, "rank": 1, "of": 1, "top": 0, "cut_off": None, "metric": 0.5, "divisor": 2,
        "metric_name": "loss", "unit": "epochs", "first": True,
    }  # fmt: skip
    assert search.validate(2, 1, 0.6) == "2xearly_stopped 1>2", "the better one of the first two goes on"
    stopped, extended = search.decided
    assert isinstance(stopped, TrialStopped)
    assert stopped.reason.numbers == {
        "rung": 0, "length": 1, "rank": 2, "of": 2, "top": 1, "cut_off": 0.5, "metric": 0.6, "divisor": 2,
        "metric_name": "loss", "unit": "epochs",
    }  # fmt: skip
    assert "outside the top 1/2 (the best 1)" in said(stopped)
    assert isinstance(extended, TrialExtended)
    assert extended.reason.rule == "asha.go_on"
    assert said(extended) == (
        "Rank 1 of 2 at rung 0 (1 epoch), loss 0.5: in the top 1/2 of those so far (the best 1), so it trains on to 2 epochs."
    )
    assert search.validate(3, 1, 0.4) == "3>2"
    assert search.validate(3, 2, 0.4) == "3| +4"
    assert search.validate(1, 2, 0.3) == "1>4 3xearly_stopped", "the one that waited is beaten"
    beaten = search.decided[1]
    assert isinstance(beaten, TrialStopped)
    assert (beaten.reason.rule, beaten.reason.numbers["rank"], beaten.reason.numbers["cut_off"]) == ("asha.stop", 2, 0.3)


def test_in_the_stopping_form_one_trial_alone_is_trained_to_the_end() -> None:
    search = asha(trials=1, concurrent=1, max_length={"epochs": 4}, mode="stopping")
    assert search.validate(1, 1, 0.5) == "1>4"
    assert isinstance(extended := search.decided[-1], TrialExtended)
    assert extended.reason.rule == "asha.finalist"
    assert search.validate(1, 4, 0.4) == "1xcompleted"


def test_the_first_one_of_stop_once_never_waits() -> None:
    search = Search(name="adaptive_asha", stop_once=True, max_trials=8, max_concurrent_trials=1, mode="aggressive", divisor=2)
    first, second = search.recorder.state.experiments[1].lengths[:2]
    assert search.validate(1, first, 0.5) == f"1>{second}"


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


def test_against_noise_the_mean_of_the_last_validations_is_compared() -> None:
    search = asha(trials=8, concurrent=2, divisor=2, max_length={"epochs": 16}, max_rungs=2, average_validations=3)
    for length, loss in [(2, 0.9), (4, 0.5), (6, 0.1), (6, 0.3)]:
        assert search.validate(1, length, loss) == "", "a restart repeats the validation at 6"
    assert search.validate(1, 7, NAN) == ""
    assert search.validate(1, 8, 0.1) == "1| +3"
    paused = search.decided[0]
    assert isinstance(paused, TrialPaused)
    assert paused.reason.numbers["metric"] == (0.5 + 0.3 + 0.1) / 3
    assert "loss 0.3 (mean of at most 3 validations)" in said(paused)
    core, state = search.recorder.core, search.recorder.state
    search.validate(2, 4, 0.2)
    assert core.load(core.dump(search.recorder.state)) == search.recorder.state != state
    assert search.validate(2, 8, 0.2) == "2>16"
    assert search.validate(2, 12, 0.9) == ""
    assert search.validate(2, 16, 0.15).startswith("2xcompleted"), "at the full length it is what was measured there"
    assert isinstance(stopped := search.decided[0], TrialStopped)
    assert stopped.reason.numbers["metric"] == 0.15
    assert search.recorder.state.experiments[1].best_score == 0.1
    assert search.validate(3, 8, None).startswith("3xearly_stopped"), "no number at the rung counts as worst"
