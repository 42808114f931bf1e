"""The story of an experiment, folded from its events."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tenuto.cli.experiment_story import Story
from tenuto.cli.follow import view

REASON = {"rule": "r", "numbers": {}}


def told(*facts: tuple[str, dict[str, Any]]) -> Story:
    story = Story(1)
    config = {
        "name": "digits",
        "searcher": {"name": "asha", "metric": "loss", "smaller_is_better": True, "max_length": {"batches": 100, "epochs": None}},
    }
    for position, (kind, data) in enumerate([("ExperimentSubmitted", {"config": config}), *facts], 1):
        story.fold({"type": kind, "position": position, "time_us": position * 1_000_000, "data": data})
    return story


def requested(number: int) -> tuple[str, dict[str, Any]]:
    data = {
        "trial_id": f"1-{number}",
        "trial_number": number,
        "hyperparameters": {"lr": 0.1},
        "target_length": 25,
        "reason": REASON,
    }
    return "TrialRequested", data


def validated(trial: str, value: float | str, length: int = 25) -> tuple[str, dict[str, Any]]:
    return "ValidationReported", {"trial_id": trial, "length": length, "batches": length, "metrics": {"loss": value}}


def test_states_of_a_trial() -> None:
    def state(*facts: tuple[str, dict[str, Any]]) -> str:
        return told(requested(1), *facts).trials["1-1"].state

    trial = {"trial_id": "1-1"}
    run = trial | {"allocation_id": "1-1-1"}
    granted, started, released = ("AllocationGranted", run), ("WorkersStarted", run), ("AllocationReleased", run)
    paused = ("TrialPaused", trial | {"reason": REASON})
    extended = ("TrialExtended", trial | {"reason": REASON, "target_length": 100})
    stopped = ("TrialStopped", trial | {"reason": REASON, "outcome": "early_stopped"})
    assert state() == "queued"
    assert state(granted) == "starting"
    assert state(granted, started) == "running"
    assert state(granted, started, ("AllocationPreempted", trial)) == "preempting"
    assert state(granted, started, released) == "queued"
    assert state(granted, started, paused, released) == "paused"
    assert state(granted, started, paused, released, extended) == "queued"
    assert state(granted, started, paused, extended) == "running"  # its workers had not left
    assert state(granted, started, stopped, released) == "early_stopped"


def test_best_ignores_what_is_not_a_number() -> None:
    story = told(requested(1), requested(2), validated("1-1", "NaN"), validated("1-2", 0.5), validated("1-2", 0.7, 50))
    assert story.best is not None
    assert (story.best.id, story.best.best, story.best.latest) == ("1-2", 0.5, 0.7)
    assert story.trials["1-1"].best is None


def test_the_end() -> None:
    story = told(requested(1), ("ExperimentFailed", {"error": "all trials failed", "trials": 1}))
    assert story.ended
    assert (story.state, story.error) == ("failed", "all trials failed")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (110, 30), (160, 50)])
def test_the_live_table_fits_the_screen(width: int, height: int) -> None:
    from rich.console import Console

    facts = [requested(number) for number in range(1, 41)]
    for number, (_, data) in enumerate(facts, 1):
        data["hyperparameters"] = {
            "learning_rate": number / 1000,
            "activation": "relu" if number % 2 else "tanh",
            "width": number,
        }
    screen = Console(width=width, height=height, record=True, file=io.StringIO())
    screen.print(view(told(*facts), width, height))
    lines = screen.export_text().splitlines()
    assert len(lines) < height
    assert sum(line.startswith(" 1-") and "queued" in line for line in lines) == min(30, height - 12)
    assert any("more trials" in line for line in lines)


def test_the_table_shows_it() -> None:
    from rich.console import Console

    screen = Console(width=160, record=True, file=io.StringIO())
    screen.print(view(told(requested(1), validated("1-1", 0.25)), screen.width))
    text = screen.export_text()
    assert "digits (experiment 1, asha): active" in text
    assert "25/25" in text
    assert "best: trial 1-1 with loss 0.25" in text


@pytest.mark.parametrize(
    ("instead", "then"), [("1-1-1-5", "resumed from 1-1-1-5 instead"), (None, "no earlier one could be used")]
)
def test_a_damaged_checkpoint_is_shown(instead: str | None, then: str) -> None:
    from rich.console import Console

    found = {"trial_id": "1-1", "checkpoint_id": "1-1-1-9", "reason": "model is not there", "resumed_from": instead}
    screen = Console(width=160, record=True, file=io.StringIO())
    screen.print(view(told(requested(1), ("CheckpointDamaged", found)), screen.width))
    assert f"trial 1-1: checkpoint 1-1-1-9 is damaged: model is not there; {then}" in screen.export_text()
