"""Rungs and lineage of a search, from the reasons of its decisions."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.experiments.policies.rung_table import RungStandings, rung_table
from tenuto.services.gateway.experiments.policies.search_decisions import Decision, Outcome
from tenuto.services.gateway.experiments.policies.trial_lineage import Copy, lineage


def decided(position: int, kind: str, trial: str, numbers: dict[str, Any], outcome: Outcome | None = None) -> Decision:
    return Decision(
        position=position,
        type=kind,
        time_us=0,
        trial_id=trial,
        rule="failed" if outcome == "failed" else "asha",
        numbers=numbers,
        sentence=f"{trial} {kind}",
        outcome=outcome,
    )


LOG = [
    decided(1, "TrialPaused", "1-1", {"rung": 0, "length": 1, "unit": "epochs", "metric": 0.5, "cut_off": None}),
    decided(2, "TrialPaused", "1-2", {"rung": 0, "length": 1, "unit": "epochs", "metric": 0.7, "cut_off": 0.5}),
    decided(3, "TrialExtended", "1-1", {"rung": 0, "length": 1, "unit": "epochs", "metric": 0.5, "cut_off": 0.5}),
    decided(4, "TrialStopped", "1-1", {"rung": 1, "length": 4, "unit": "epochs", "metric": 0.3}, "completed"),
    decided(5, "TrialStopped", "1-2", {"rung": 0, "length": 1, "unit": "epochs", "metric": 0.7, "cut_off": 0.9}, "early_stopped"),
]


def standings(rung: RungStandings) -> list[tuple[str, str, float | None]]:
    return [(one.trial_id, one.fate, one.metric) for one in rung.standings.values()]


def test_each_trial_stands_once_at_each_rung_with_its_newest_fate() -> None:
    low, high = rung_table(LOG)
    assert [(rung.length, rung.unit, rung.cut_off) for rung in (low, high)] == [(1, "epochs", 0.5), (4, "epochs", None)]
    assert standings(low) == [("1-1", "goes on", 0.5), ("1-2", "stopped", 0.7)]
    assert [one.sentence for one in low.standings.values()] == ["1-1 TrialExtended", "1-2 TrialStopped"]
    assert standings(high) == [("1-1", "completed", 0.3)]
    [before] = rung_table(LOG[:2])
    assert [fate for _, fate, _ in standings(before)] == ["waits", "waits"]


def test_a_search_without_rungs_has_none() -> None:
    no_number = decided(2, "TrialPaused", "1-1", {"rung": 0, "length": 1, "metric": "NaN"})
    assert rung_table([decided(1, "TrialStopped", "1-1", {"metric": 0.5}), no_number]) == []


def test_rungs_of_several_brackets_with_one_number_are_rungs_of_their_own() -> None:
    def at(bracket: int, rung: int, length: int) -> dict[str, Any]:
        return {"bracket": bracket, "rung": rung, "length": length, "metric": length, "cut_off": length}

    rungs = rung_table(
        [
            decided(1, "TrialExtended", "1-3", at(1, 0, 4)),
            decided(2, "TrialExtended", "1-1", at(0, 0, 1)),
            decided(3, "TrialPaused", "1-1", at(0, 1, 4)),
            decided(4, "TrialStopped", "1-3", at(1, 1, 16), "completed"),
        ]
    )
    assert [(rung.key, rung.bracket, rung.length, len(rung.standings)) for rung in rungs] == [
        ("0/0", 0, 1, 1), ("0/1", 0, 4, 1), ("1/0", 1, 4, 1), ("1/1", 1, 16, 1),
    ]  # fmt: skip


def test_a_trial_that_is_stopped_while_it_waits_no_longer_waits_and_one_that_trained_on_is_left_as_it_was() -> None:
    at, canceled = {"rung": 0, "length": 1, "metric": 0.5, "cut_off": 0.5}, {"rung": 1, "length": 4}
    [rung] = rung_table(
        [
            decided(1, "TrialPaused", "1-1", at),
            decided(2, "TrialExtended", "1-2", at),
            decided(3, "TrialStopped", "1-1", canceled, "canceled"),
            decided(4, "TrialStopped", "1-2", canceled, "canceled"),
        ]
    )
    assert standings(rung) == [("1-1", "stopped", 0.5), ("1-2", "goes on", 0.5)]


def test_a_trial_that_has_nothing_to_be_compared_by_stands_at_its_rung_without_a_value() -> None:
    [rung] = rung_table(
        [
            decided(1, "TrialStopped", "1-1", {"rung": 0, "length": 1, "metric": None, "rank": 1, "of": 1}, "early_stopped"),
            decided(2, "TrialStopped", "1-2", {"rung": 0, "length": 1, "failures": 5, "of": 2}, "failed"),
            decided(3, "TrialStopped", "1-3", {"rung": 0, "length": 1, "failures": 5, "waited": True}, "failed"),
        ]
    )
    assert standings(rung) == [("1-1", "stopped", None), ("1-2", "stopped", None)]


def test_trials_that_a_class_of_the_user_decides_about_stand_at_the_lengths_that_they_were_to_reach() -> None:
    rungs = rung_table(
        [
            decided(1, "TrialPaused", "1-1", {"metric": 0.5, "metric_name": "loss", "length": 2}),
            decided(2, "TrialPaused", "1-2", {"metric": 0.6, "metric_name": "loss", "length": 2}),
            decided(3, "TrialExtended", "1-1", {"searcher": "s.py:S", "cause_position": 2, "index": 0, "length": 8}),
            decided(4, "TrialStopped", "1-2", {"searcher": "s.py:S", "cause_position": 2, "index": 1}, "early_stopped"),
            decided(5, "TrialStopped", "1-1", {"metric": 0.2, "metric_name": "loss", "length": 8}, "completed"),
        ]
    )
    assert [(rung.length, standings(rung)) for rung in rungs] == [
        (2, [("1-1", "goes on", 0.5), ("1-2", "stopped", 0.6)]),
        (8, [("1-1", "completed", 0.2)]),
    ]


def asked(
    position: int, number: int, values: dict[str, Any], parent: int | None = None, generation: int | None = None
) -> Decision:
    return Decision(
        position=position,
        type="TrialRequested",
        time_us=position,
        trial_id=f"1-{number}",
        rule="pbt.copy",
        numbers={} if generation is None else {"generation": generation, "parent_metric": 0.5},
        sentence=f"trial {number}",
        number=number,
        parent_id=None if parent is None else f"1-{parent}",
        hyperparameters={**values, "net": {"layers": 2}},
    )


POPULATION = [
    asked(1, 1, {"lr": 0.1}),
    asked(2, 2, {"lr": 0.2}),
    asked(3, 3, {"lr": 0.3}),
    decided(4, "TrialStopped", "1-3", {}, "early_stopped"),
    asked(5, 4, {"lr": 0.12, "net.bias": True}, 1, 0),
    asked(6, 5, {"lr": 0.08}, 1, 1),
    asked(7, 6, {"lr": 0.1}, 4, 1),
]


def told(copy: Copy) -> tuple[str, str | None, int]:
    return copy.trial_id, copy.parent_id, copy.generation


def test_copies_know_whom_they_come_from_when_and_what_was_changed() -> None:
    copies = lineage(POPULATION)
    assert [told(copy) for copy in copies] == [
        ("1-1", None, 0), ("1-2", None, 0), ("1-3", None, 0), ("1-4", "1-1", 1), ("1-5", "1-1", 2), ("1-6", "1-4", 2),
    ]  # fmt: skip
    assert copies[3].parent_metric == 0.5
    assert [(change.name, change.before, change.after) for change in copies[3].changed] == [
        ("lr", 0.1, 0.12), ("net.bias", None, True),
    ]  # fmt: skip
    assert (copies[2].outcome, copies[2].sentences) == ("early_stopped", ["trial 3", "1-3 TrialStopped"])


def test_an_earlier_moment_has_no_later_copies() -> None:
    assert [copy.outcome for copy in lineage(POPULATION[:3])] == [None, None, None]
    [orphan] = lineage([asked(9, 7, {"lr": 0.1}, 99, 3)])
    assert (told(orphan), orphan.changed) == (("1-7", "1-99", 0), ())
