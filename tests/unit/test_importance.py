"""Importance of hyperparameters: what can be judged, and what fANOVA finds in a metric that we made ourselves."""

from __future__ import annotations

import math
import random

import pytest

from tenuto.services.gateway.experiments.adapters import importance
from tenuto.services.gateway.experiments.adapters.importance import NoImportance, axes, flat, judged, logarithmic


def test_names_of_nested_hyperparameters() -> None:
    assert flat({"lr": 1, "net": {"layers": [1, 2], "kind": {"name": "a"}, "none": {}}}) == {
        "lr": 1, "net.layers": [1, 2], "net.kind.name": "a", "net.none": {}
    }  # fmt: skip
    space = {"lr": {"type": "log", "minval": -3}, "net": {"decay": {"type": "log"}, "units": {"type": "int"}}, "batch": 3}
    assert logarithmic(space) == ["lr", "net.decay"]


def test_what_is_alike_missing_or_a_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "CHOICES_MAX", 2)
    trials = [
        ({"lr": 10.0**-number, "same": 1, "name": f"run {number}", "flag": number % 2 == 0, "units": number}
         | ({"only": 1} if number else {}), 0.0)
        for number in range(3)
    ]  # fmt: skip
    found, left_out = axes(trials, ["lr"])
    assert left_out == ["name", "only", "same"]
    assert found["lr"] == [math.log(10.0**-number) for number in range(3)]
    assert found["flag"] == ["true", "false", "true"]
    assert found["units"] == [0.0, 1.0, 2.0]


def test_the_hyperparameter_that_makes_the_metric_is_the_most_important() -> None:
    draws = random.Random(0)
    trials = []
    for _ in range(40):
        values = {"lr": 10 ** draws.uniform(-4, -1), "units": draws.randint(1, 9), "optimizer": draws.choice(["adam", "sgd"])}
        trials.append((values, (math.log10(values["lr"]) + 2) ** 2 + 0.01 * values["units"]))
    found = judged(trials, ["lr"])
    assert next(iter(found["importances"])) == "lr"
    assert found["importances"]["lr"] > 0.8
    assert found == judged(trials, ["lr"])  # the same each time


@pytest.mark.parametrize(
    ("trials", "sentence"),
    [
        ([({"lr": 1}, 1.0)] * 3, "needs 4 trials with a metric; 3 have one"),
        ([({"lr": 1}, float(number)) for number in range(4)], "No hyperparameter differs"),
        ([({"lr": number}, 1.0) for number in range(4)], "All trials have the same metric"),
    ],
)
def test_what_cannot_be_judged_is_said_in_a_sentence(trials: list[tuple[dict[str, float], float]], sentence: str) -> None:
    with pytest.raises(NoImportance, match=sentence):
        judged(trials, [])
