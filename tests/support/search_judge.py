"""A naive judge of a search: what it must not do, from the events alone."""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import isfinite
from typing import Any

from tenuto.schemas.config import HyperbandSearcher, PbtSearcher, PluginSearcher, ShaSearcher
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentSubmitted, ExperimentTrialLimitsChanged
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved, TrainingEnded, TrialFailed, ValidationReported
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.methods import method_for
from tests.support.search_world import World

ACTOR = f"searcher/{SearcherCore().rule_version}"
CONSTRAINTS = {"dropout < 0.4": lambda h: h["dropout"] < 0.4, "model.layers + dropout < 4": lambda h: h["model"]["layers"] < 4}


def broken(world: World, log: Iterable[Event]) -> list[str]:
    """Violations of the invariants of searches, judged from the events alone."""
    judge = Judge(world.request)
    for event in log:
        judge.see(event)
    if log[-1].type == "ExperimentCompleted" and not judge.limited and judge.config.name != "pbt":
        judge.expect(judge.counted == judge.trials_max, f"{judge.counted} trials instead of {judge.trials_max}")
    return judge.wrong


Place = tuple[int, int]
"""Bracket, and index of the rung in it."""


class Judge:
    """Keeps its own, naive account of the search: every rung as a plain list of all scores."""

    def __init__(self, request: ExperimentSubmitted) -> None:
        config, parent = request.config, request.parent
        self.config: Any = config.searcher
        self.sources = {f"1-{item.trial_number}": item for item in (parent.sources if parent else ())}
        self.earlier = {trial: item.validations for trial, item in self.sources.items()}
        method = method_for(self.config, config.hyperparameters)
        self.brackets, self.trials_max, self.concurrent_max = method.brackets, method.trials_max, method.concurrent_trials_max
        self.status: dict[str, str] = {}
        self.rung: dict[str, Place] = {}
        self.scores: dict[str, float] = {}
        self.last: dict[str, float] = {}
        """Score of each trial's last validation."""
        self.ended: set[str] = set()
        """Trials whose own code ended their training."""
        self.copied: dict[str, tuple[str, str | None]] = {}
        """Parent of each copy, and the checkpoint that it began from."""
        self.saved: dict[str, str] = {}
        """Each trial's newest checkpoint."""
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
            self.last[trial] = self.score(data.metrics.get("loss", float("inf")))
        if isinstance(data, ValidationReported) and self.status.get(trial) == "running":
            while data.length >= self.length(self.rung[trial]):
                bracket, index = self.rung[trial]
                top = index + 1 == len(self.brackets[bracket].lengths)
                self.scores[trial] = self.score(data.metrics.get("loss", float("inf")))
                for item in () if top else self.earlier.get(trial, ()):
                    if item.length >= self.length((bracket, index)):
                        self.scores[trial] = self.score(item.metric)
                        break
                self.status[trial] = "reached"
                insort(self.rungs[bracket, index], self.key(trial))
                # One that is further already is at the next rung, too.
                if top or data.length < self.length((bracket, index + 1)):
                    break
                self.rung[trial] = (bracket, index + 1)
                self.sent[bracket, index + 1] += 1
        elif isinstance(data, TrainingEnded):
            if self.status.get(trial) == "running":
                self.scores[trial] = self.last.get(trial, float("inf"))
                bracket, index = self.rung[trial]
                if index + 1 < len(self.brackets[bracket].lengths):
                    for item in self.earlier.get(trial, ()):
                        if item.length >= self.length((bracket, index)):
                            self.scores[trial] = self.score(item.metric)
                            break
                insort(self.rungs[self.rung[trial]], self.key(trial))
            if self.status.get(trial) in ("running", "paused"):
                self.status[trial] = "ended"
                self.ended.add(trial)
        elif isinstance(data, CheckpointSaved):
            self.saved[trial] = data.checkpoint_id
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

    def score(self, value: float) -> float:
        return (1 if self.config.smaller_is_better else -1) * value if isfinite(value) else float("inf")

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
            self.expect((data.reason.rule == "ended_by_itself") == (status == "ended" and data.outcome == "completed"), trial)
            if data.outcome == "completed" and status != "ended":
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
        source = self.sources.get(trial)
        if source is not None and not source.is_of(data.trial_number, data.seed, data.hyperparameters):
            self.earlier.pop(
                trial
            )  # such as one in the place of a refused trial, whose number the earlier experiment gave to another
        lengths = self.brackets[data.bracket].lengths
        place = (data.bracket, lengths.index(data.target_length))
        if data.parent_trial_id is None:
            self.expect(place[1] == 0, f"{trial} starts at another length than the first rung")
            started = sum(rung[0] == data.bracket for rung in self.rung.values())
            self.expect(self.limited or started < self.brackets[data.bracket].trials, "more trials than the bracket has")
        else:
            self.judge_copy(trial, data, (place[0], place[1] - 1))
        self.status[trial], self.rung[trial] = "running", place
        self.sent[place] += 1
        self.expect(self.counted <= self.trials_max, "more trials than max_trials")

    def judge_copy(self, trial: str, data: TrialRequested, before: Place) -> None:
        rung, parent, start = self.rungs[before], data.parent_trial_id or "", data.source_checkpoint_id
        self.copied[trial] = (parent, start)
        self.expect(data.reason.numbers.get("anew", False) == (start is None), f"{trial} does not say where it begins")
        if (refused := data.reason.numbers.get("replaces")) is not None:
            self.expect(self.copied[trial] == self.copied[f"1-{refused}"], f"{trial} is no copy as the one that it replaces")
            return
        self.expect(len(rung) == self.sent[before], f"{trial} is a copy before the generation is complete")
        top = max(1, int(self.config.population_size * self.config.truncate_fraction))
        there = [number for _, number in rung if self.status[f"1-{number}"] in ("paused", "reached")]
        best = [number for _, number in rung[:top] if number in there] or there[:top]
        self.expect(int(parent.split("-")[1]) in best, f"{trial} is a copy of one that is not among the best")
        self.expect(start == self.saved.get(parent), f"{trial} has another checkpoint")
        spared = all(f"1-{number}" not in self.saved for number in best)
        self.expect(bool(start) or spared, f"{trial} begins anew, and needs not")

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
        if isinstance(self.config, PluginSearcher):  # median_stopping of examples/plug-ins
            before, better = len(rung) - 1, rung.index(key)
            passes = before < self.config.settings["grace"] or 2 * better <= before
            self.expect(passes, f"{trial} goes on though it is worse than the median")
            return
        stopping = getattr(self.config, "mode", "") == "stopping" or getattr(self.config, "stop_once", False)
        if isinstance(self.config, PbtSearcher):
            replaced = max(1, int(self.config.population_size * self.config.truncate_fraction))
            top = max(1, len(rung) - replaced)
        elif isinstance(self.config, (ShaSearcher, HyperbandSearcher)):
            planned = self.brackets[place[0]].trials
            for _ in range(place[1]):
                planned = max(1, planned // self.config.divisor)
            top = min(planned, len(rung)) // self.config.divisor
        else:
            top = len(rung) // self.config.divisor
        if stopping or isinstance(self.config, (ShaSearcher, HyperbandSearcher)):
            top = max(1, top)
        if isinstance(self.config, (ShaSearcher, HyperbandSearcher, PbtSearcher)):
            self.expect(len(rung) == self.sent[place], f"{trial} goes on before its rung is complete")
        ahead = rung.index(key)
        if not isinstance(self.config, PbtSearcher):  # those that ended leave their places to others
            ahead -= sum(f"1-{number}" in self.ended and self.rung[f"1-{number}"] == place for _, number in rung[:ahead])
        if rule != "asha.finalist":
            self.expect(ahead < top, f"{trial} goes on from outside the top")
        if not stopping:
            self.expect(all(key < other for other in waiting), f"{trial} goes on before a better one")

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)
