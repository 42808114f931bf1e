"""Tables of experiments: numbers aligned, nothing cut off, whatever the width of the screen."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.cli import trials
from tenuto.cli.describe import experiment_view
from tenuto.cli.output import aligned, compare

REASON = "Not among the best 8 of 12 at rung 0 (1 epoch), accuracy 0.697222: of 16 trials at most the best 4 can go on."


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.625, 0.983333, None], ["0.6250", "0.9833", "-"]),
        ([0.5, 0.25], ["0.50", "0.25"]),
        ([1e-6, 0.5], ["1.000e-06", "5.000e-01"]),
        ([float("nan"), 0.125, 0.0], ["nan", "0.125", "0.000"]),
        ([12345.6, 3.0], ["12345.6", "3.0"]),
        ([64, 128], ["64", "128"]),
        (["relu", None], ["relu", "-"]),
        ([], []),
    ],
)
def test_numbers_of_a_column(values: list[Any], shown: list[str]) -> None:
    assert aligned(values) == shown


def test_hyperparameters_that_differ_have_columns_of_their_own() -> None:
    trials = [
        {"learning_rate": 0.01, "net": {"depth": 2}, "batch_size": 32},
        {"learning_rate": 0.5, "net": {"depth": 3}, "batch_size": 32},
    ]
    wide = compare(trials, 80)
    assert wide.columns == (">learning_rate", ">net.depth")
    assert wide.rows == (("0.01", "2"), ("0.50", "3"))
    assert wide.same == {"batch_size": 32}
    assert compare(trials, 22).columns == (">learning_\nrate", ">net.\ndepth")
    narrow = compare(trials, 10)
    assert (narrow.columns, narrow.rows[1]) == (("hyperparameters",), ("learning_rate=0.50 net.depth=3",))
    assert compare(trials[:1], 80).rows == (("0.01", "2", "32"),)
    assert compare([], 80).rows == ()


def shown(width: int, breaks: dict[int, list[str]] | None = None, **changes: Any) -> str:
    from rich.console import Console

    view = {
        "id": 6, "name": "digits", "state": "completed", "method": "asha", "metric": "accuracy", "smaller_is_better": False,
        "seed": 7, "slots_per_trial": 1, "priority": 42, "submitted_us": 0, "ended_us": 9_000_000, "user": "admin", "error": None,
        "labels": [],
        "best_trial_id": "6-2", "best_metric": 0.98, "config": {"searcher": {"max_length": {"batches": None, "epochs": 16}}},
    } | changes  # fmt: skip
    trials = [
        {
            "id": f"6-{number}", "number": number, "state": "early_stopped", "length": 1, "target_length": 1,
            "best_metric": metric, "allocations": 1, "error": None, "reason": REASON,
            "hyperparameters": {"learning_rate": number / 10, "activation": "relu"}, "breaks": (breaks or {}).get(number, []),
        }
        for number, metric in ((1, None), (2, 0.98), (3, 0.7))
    ]  # fmt: skip
    screen = Console(width=width, record=True, file=io.StringIO())
    screen.print(experiment_view(view, trials, None, width))
    return screen.export_text()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_reasons_can_be_read_at_any_width(width: int) -> None:
    text = shown(width)
    assert "…" not in text
    assert " ".join(text.split()).count(REASON) == 3
    at = [text.index(f"\n {trial} ") for trial in ("6-2", "6-3", "6-1")]
    assert at == sorted(at), "the best comes first, the one without a metric last"
    assert "trial 6-2 with accuracy 0.98" in text


def test_no_best_is_explained() -> None:
    assert "none: accuracy was never a finite number" in shown(120, best_trial_id=None, best_metric=None)


def test_what_breaks_exactness_is_told_of_the_experiment_with_the_trials_that_it_concerns() -> None:
    order, lock = "the order of its records cannot be drawn again", "self.lock cannot be saved"
    text = " ".join(shown(160, {1: [order], 2: [order, lock], 3: [order]}).split())
    assert f"not exact {order} (trials 6-1, 6-2, 6-3)" in text
    assert f"not exact {lock} (trial 6-2)" in text
    many = " ".join(shown(160, {2: [f"reason {number}" for number in range(12)]}).split())
    assert many.count("not exact reason") == 10
    assert "not exact 2 more; `tenuto trial describe` has all of a trial" in many
    assert "not exact" not in shown(160)


def test_what_breaks_exactness_is_told_of_the_trial(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    view = {
        "id": "6-2", "state": "completed", "length": 1, "target_length": 1, "hyperparameters": {}, "seed": 1, "best_metric": 1.0,
        "allocations": 2, "failures": 0, "reason": REASON, "requested_us": 0, "ended_us": 9, "error": None,
        "breaks": ["self.lock cannot be saved", "it reads the clock"],
    }  # fmt: skip
    answers = {"/trials/6-2": view, "/trials/6-2/validations": {"items": []}, "/checkpoints": {"items": []}}
    monkeypatch.setattr(trials, "client", lambda _: SimpleNamespace(get=lambda path, **_: answers[path]))
    trials.describe(cast(Any, None), "6-2")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("not exact")[1].strip() for line in lines if "not exact" in line] == view["breaks"]
