"""`tenuto exp why` for every method, asked of a real gateway: what its sentences say is worked out again from the results."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.cli.why import told as command_says
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentSubmitted, SearchOperationsRequested
from tenuto.schemas.events.search import Search, TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFailed, ValidationReported
from tenuto.schemas.operations import Create, Extend, Stop
from tests.integration.test_gateway_rest import World as Gateway
from tests.integration.test_gateway_rest import world as gateway  # noqa: F401 - a fixture
from tests.support.proposals import propose_all
from tests.support.said import said as told_plainly
from tests.support.search_world import SPACE, Faults, World, submitted

FAULTS = Faults(fail=0.1, nan=0.1)
GRID = {"batch_size": {"type": "categorical", "vals": [16, 32]}, "width": {"type": "categorical", "vals": [1, 2, 3]}}
SEARCHES: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "random": {"name": "random", "max_trials": 4},
    "sobol": {"name": "sobol", "max_trials": 4},
    "grid": {"name": "grid"},
    "sha": {"name": "sha", "max_trials": 18, "divisor": 3},
    "hyperband": {"name": "hyperband", "divisor": 4},
    "asha": {"name": "asha", "max_trials": 24, "divisor": 2},
    "asha stopping": {"name": "asha", "mode": "stopping", "max_trials": 24, "divisor": 2},
    "adaptive_asha": {"name": "adaptive_asha", "max_trials": 24, "divisor": 2, "mode": "conservative"},
    "bohb": {"name": "bohb", "max_trials": 40, "divisor": 2},
    "pbt": {"name": "pbt", "population_size": 6, "generations": 3},
    "tpe": {"name": "tpe", "max_trials": 8, "startup_trials": 3},
    "gp": {"name": "gp", "max_trials": 6, "startup_trials": 3},
    "cmaes": {"name": "cmaes", "max_trials": 8, "startup_trials": 3},
    "nsga2": {"name": "nsga2", "max_trials": 8, "startup_trials": 3, "objectives": [{"metric": "accuracy"}]},
    "custom": {"name": "custom", "max_trials": 4},
}


class Proposing(World):
    """With a sampler's part, and that of a user's own class: four trials, of which the first one that reports goes on."""

    def react(self, decided: list[EventData]) -> None:
        super().react(decided)
        if more := propose_all(self.recorder):
            super().react(more)
        if self.request.config.searcher.name == "custom":
            for data in decided:
                self._decide(data)

    def _decide(self, data: EventData) -> None:
        operations: list[Any] = []
        if data.TYPE == "ExperimentStarted":
            operations = [Create(length=2) for _ in range(4)]
        elif isinstance(data, TrialPaused):
            number = int(data.trial_id.split("-")[1])
            operations = [Extend(trial=number, length=16) if self._first(number) else Stop(trial=number)]
        if operations:
            cause = self.recorder.log[-1]
            super().react(self.recorder.put(SearchOperationsRequested(
                experiment_id=self.request.experiment_id, searcher="mine.py:Mine", cause_id=str(cause.id),
                cause_position=cause.position, operations=tuple(operations),
            )))  # fmt: skip

    def _first(self, number: int) -> bool:
        paused = [event.data for event in self.recorder.log if isinstance(event.data, TrialPaused)]
        return paused[0].trial_id.endswith(f"-{number}")


def searched(name: str, experiment: int) -> list[Event]:
    """The log of a search, with failures and with losses that are not numbers where a method compares."""
    settings: dict[str, Any] = {} if name == "single" else {"max_concurrent_trials": 3}
    compares = name not in ("single", "random", "sobol", "grid", "pbt", "tpe", "gp", "cmaes", "nsga2", "custom")
    request = submitted(settings | SEARCHES[name], experiment, seed=11, space=GRID if name == "grid" else SPACE)
    return Proposing(request, seed=experiment, slots=3, faults=FAULTS if compares else Faults()).run()


@dataclass
class Compared:
    """Worked out from the reports alone: (bracket, length) -> scores of those that came there, the worst without a number."""

    divisor: int
    results: dict[tuple[int | None, int], list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    lost: dict[tuple[int | None, int], int] = field(default_factory=lambda: defaultdict(int))
    at: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    """Bracket and target of each trial."""
    reached: set[tuple[str, int]] = field(default_factory=set)

    def note(self, data: EventData) -> None:
        if isinstance(data, TrialRequested):
            self.at[data.trial_id] = (data.bracket, data.target_length)
        elif isinstance(data, TrialExtended):
            self.at[data.trial_id] = (self.at[data.trial_id][0], data.target_length)
        elif isinstance(data, ValidationReported) and data.length == self.at[data.trial_id][1]:
            if (data.trial_id, data.length) not in self.reached:
                self._arrive(data.trial_id, data.metrics["loss"])
        elif isinstance(data, TrialFailed) and data.final and (data.trial_id, self.at[data.trial_id][1]) not in self.reached:
            self._arrive(data.trial_id, float("nan"))

    def _arrive(self, trial: str, loss: float) -> None:
        place = self.at[trial]
        self.reached.add((trial, place[1]))
        if loss == loss:
            self.results[place].append((loss, int(trial.split("-")[1])))
        else:
            self.lost[place] += 1

    def rung(self, trial: str, length: int) -> tuple[list[tuple[float, int]], int]:
        """The scores there from the best on, and how many came."""
        place = (self.at[trial][0], length)
        return sorted(self.results[place]), len(self.results[place]) + self.lost[place]


def check_numbers(compared: Compared, data: Any) -> bool:
    """True if the decision compared ranks; asserts that they follow from the reports so far."""
    numbers, trial = data.reason.numbers, data.trial_id
    if "of" not in numbers or data.reason.rule == "failed" or "arrived" in numbers:
        return False
    scores, came = compared.rung(trial, numbers["length"])
    assert numbers["of"] == came, told_plainly(data)
    if numbers["metric"] is None:
        assert numbers["rank"] == came, "the worst"
        return True
    rank = scores.index((numbers["metric"], int(trial.split("-")[1]))) + 1
    assert rank == numbers["rank"] if "rank" in numbers else rank >= numbers["rank_at_least"], told_plainly(data)
    if numbers.get("cut_off") is not None:
        best = (came // compared.divisor, 1)
        assert numbers["top"] in best or numbers["rank"] > numbers["top"] or data.reason.rule.startswith("pbt."), numbers
        assert numbers["cut_off"] == scores[numbers["top"] - 1][0], told_plainly(data)
    return True


def check_sentence(text: str, data: Any) -> None:
    """Asserts that the sentence has the numbers of the recorded decision."""
    numbers = data.reason.numbers
    assert re.fullmatch(r"[A-Z].*\.|loss .*\.", text), text
    if "rank" in numbers and numbers["metric"] is not None:
        assert f"ank {numbers['rank']}" in text, text
        assert f"loss {numbers['metric']:.6g}" in text, text
        assert f"of {numbers['of']}" in text or f"All {numbers['of']} " in text or f"the {numbers['of']} " in text or (
            "Generation" in text
        ), text  # fmt: skip
    if numbers.get("cut_off") is not None and numbers.get("rank") != numbers["top"]:
        assert f"{numbers['cut_off']:.6g}" in text, text
    if "generation" not in text.lower() and {"rank", "length"} <= numbers.keys():
        assert re.search(rf"rung \d+ \({numbers['length']} epochs?\)", text), text


SAYS: dict[str, list[str]] = {
    "single": [r"Trial 1 of at most 1, .* it trains to 16 epochs\.", r"Trained to the full length of 16 epochs: loss [\d.]+\."],
    "random": [r"Trial \d of at most 4, as \d of at most 3 are active", r"Trained to the full length"],
    "sobol": [r"Trial \d of at most 4", r"Trained to the full length"],
    "grid": [r"Trial \d of at most 6", r"Trained to the full length"],
    "sha": [
        r"it waits without slots until all are\.",
        r"All 18 trials of rung 0 \(1 epoch\) are compared: rank \d, loss [\d.]+, is among the best 6 \(1/3\), so it trains on",
        r"of 18 only the best 6 go on, so it is stopped\.",
    ],
    "hyperband": [r"of bracket 0, where \d+ of 16 trials are", r"of bracket 1 are compared: rank", r"only the best \d+ go on"],
    "asha": [
        r"not in the top 1/2 \(.*\) yet, so it waits without slots\.",
        r"in the top 1/2 \(the best \d+\), so it trains on to 2 epochs\.",
        r"The cut-off was [\d.]+ \(rank \d+\)\.",
        r"loss is missing or not finite at rung \d .*: it counts as worst of \d+ and is stopped\.",
        r"Given up after \d failures?; at rung \d .* it counts as worst of \d+\.",
        r"The search is over: no trial runs and no new one is wanted\. Rank \d+ of \d+ at rung",
    ],
    "asha stopping": [
        r"in the top 1/2 of those so far \(the best \d+\), so it trains on to",
        r"outside the top 1/2 \(the best \d+\), so it is stopped\. The cut-off was [\d.]+ \(rank \d+\)\.",
    ],
    "adaptive_asha": [r"Rank \d+ of \d+ at rung \d+ \(\d+ epochs?\) of bracket [1-9]"],
    "bohb": [r"Its hyperparameters come from a model of \d+ results at rung \d"],
    "pbt": [
        r"Generation 0 is complete: rank \d of 6, loss [\d.]+, is among the best \d, so it trains on",
        r"Rank \d of 6, loss [\d.]+, at the end of generation \d: among the worst \d, so a copy of one of the best takes",
        r"It is a copy of trial \d+-\d+ \(rank \d of 6 in generation \d, loss [\d.]+\) from its checkpoint",
    ],
    **{
        name: [
            rf"Its hyperparameters are a random draw: {name} begins when it has 3 results, and there are [012]\.",
            rf"Its hyperparameters were proposed by {sampler} from \d results\.",
        ]
        for name, sampler in (("tpe", r"tpe \(optuna .*\)"), ("gp", r"gp \(optuna .*\)"), ("nsga2", r"nsga2 \(optuna .*\)"))
    },
    "cmaes": [r"a random draw: cmaes begins when it has 3 results", r"were proposed by cmaes \(.*\) from \d results\."],
    "custom": [
        r"Asked for by mine.py:Mine on the event at position \d+",
        r"its target: it waits without slots until the search's own class extends or stops it\.",
        r"it trains on to 16 epochs\.",
    ],
}


async def test_every_method_says_why_and_it_is_true(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("tenuto.cli.output.PIPE_WIDTH", 1_000)  # whole sentences
    address = str(gateway.http.base_url)
    token = gateway.http.headers["Authorization"].removeprefix("Bearer ")

    def why(trial: str) -> str:
        done = CliRunner().invoke(app, ["exp", "why", trial], env={"TENUTO_URL": address, "TENUTO_TOKEN": token})
        assert done.exit_code == 0, done.output
        return done.output

    for experiment, name in enumerate(SEARCHES, 1):
        log = searched(name, experiment)
        assert log[-1].type == "ExperimentCompleted", name
        await gateway.record(*(event.data for event in log))
        decisions = await asyncio.to_thread(checked, name, log, why)
        for pattern in SAYS[name]:
            assert any(re.search(pattern, text) for text in decisions), f"{name}: nothing like {pattern}\n" + "\n".join(decisions)


async def test_copies_are_shown_with_what_was_changed(gateway: Gateway) -> None:  # noqa: F811
    environment = {
        "TENUTO_URL": str(gateway.http.base_url),
        "TENUTO_TOKEN": gateway.http.headers["Authorization"].removeprefix("Bearer "),
    }

    async def lineage(experiment: int, *more: str) -> str:
        command = ["exp", "lineage", str(experiment), *more]
        done = await asyncio.to_thread(CliRunner().invoke, app, command, env=environment)
        assert done.exit_code == 0, done.output
        return done.output

    for experiment, name in ((1, "pbt"), (2, "random")):
        log = searched(name, experiment)
        await gateway.record(*(event.data for event in log))
        born = {event.data.trial_id: event.data for event in log if isinstance(event.data, TrialRequested)}
        copies = {trial: data for trial, data in born.items() if data.parent_trial_id is not None}
        if name == "random":
            assert await lineage(experiment) == "No trial of experiment 2 is a copy of another one.\n"
            continue
        assert copies
        told = {entry["trial_id"]: entry for entry in json.loads(await lineage(experiment, "--json"))}
        assert {trial for trial, entry in told.items() if entry["depth"]} == copies.keys()
        shown = (await lineage(experiment)).splitlines()
        for trial, data in copies.items():
            assert data.parent_trial_id is not None
            (row,) = (line for line in shown if f"└ {trial} " in line)
            assert data.source_checkpoint_id is not None
            assert data.source_checkpoint_id in row
            assert told[trial]["depth"] == told[data.parent_trial_id]["depth"] + 1
            before, now = born[data.parent_trial_id].hyperparameters["lr"], data.hyperparameters["lr"]
            assert told[trial]["changed"]["lr"] == [before, now]
            assert f"lr {before:.6g} -> {now:.6g}" in row


def shown_of(data: EventData) -> str:
    """As the command shows it."""
    return command_says({"data": json.loads(data.to_json()), "sentence": told_plainly(data)})


def checked(name: str, log: list[Event], why: Callable[[str], str]) -> list[str]:
    """The sentences about all decisions, as the command shows them."""
    request = log[0].data
    assert isinstance(request, ExperimentSubmitted)
    settings = json.loads(request.config.searcher.to_json())
    compared, ranked = Compared(settings.get("divisor") or 1), 0
    expected: dict[str, list[Any]] = defaultdict(list)
    for event in log:
        data = event.data
        if isinstance(data, (TrialRequested, TrialExtended, TrialPaused, TrialStopped)):
            if data.TYPE != "TrialRequested":
                ranked += check_numbers(compared, data)
            expected[data.trial_id].append(data)
        compared.note(data)
        assert not isinstance(data, Search) or data.experiment_id == request.experiment_id
    assert (ranked > 3) == (name in ("sha", "hyperband", "asha", "asha stopping", "adaptive_asha", "bohb", "pbt")), ranked
    said, rules = [], set()
    for trial, decisions in expected.items():
        said += [shown_of(data) for data in decisions]
        for text, data in zip(said[-len(decisions) :], decisions, strict=True):
            check_sentence(text, data)
        if {data.reason.rule for data in decisions} <= rules:
            continue  # the command showed such already
        rules |= {data.reason.rule for data in decisions}
        rows = [re.split(r"\s{2,}", line.strip()) for line in why(trial).splitlines() if re.match(r"\s*\d+\s", line)]
        assert len(rows) == len(decisions), trial
        shown = [(row[3], row[-1]) for row in rows]
        assert shown == list(zip(said[-len(decisions) :], [data.reason.rule for data in decisions], strict=True))
    return said
