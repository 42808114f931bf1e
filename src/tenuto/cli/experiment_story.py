"""Story of one experiment, folded from its events on the user's side: the live table, and the state at any position."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

HOUSEKEEPING = ("CheckpointDeleted", "ReportRefused")
"""Events whose reasons are not the last decision that a user waits for."""
ENDED = {"ExperimentCompleted": "completed", "ExperimentFailed": "failed", "ExperimentCanceled": "canceled"}


@dataclass
class TrialStory:
    id: str
    number: int
    hyperparameters: dict[str, Any]
    target: int
    state: str = "queued"
    length: int = 0
    batches: int = 0
    latest: float | None = None
    best: float | None = None
    allocation_id: str | None = None
    """Present allocation."""
    allocations: int = 0
    failures: int = 0
    error: str | None = None
    checkpoint_id: str | None = None
    damaged: dict[str, str] = field(default_factory=dict)
    """Checkpoints that a run could not resume from, with what was wrong."""
    outcome: str | None = None
    reason: str = ""


@dataclass
class Story:
    """Mutable, and fed with decoded JSON events in log order, as the cluster tells them: with the sentences of decisions."""

    id: int
    name: str = ""
    state: str = "unknown"
    metric: str = ""
    smaller_is_better: bool = True
    method: str = ""
    unit: str = "batches"
    max_length: int = 0
    started_us: int | None = None
    time_us: int | None = None
    position: int = 0
    error: str | None = None
    trials: dict[str, TrialStory] = field(default_factory=dict)
    last_reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED.values()

    @property
    def best(self) -> TrialStory | None:
        tried = [trial for trial in self.trials.values() if trial.best is not None]
        sign = 1 if self.smaller_is_better else -1
        return min(tried, key=lambda trial: (sign * (trial.best or 0.0), trial.number), default=None)

    def fold(self, event: dict[str, Any]) -> None:
        data = event["data"]
        self.position, self.time_us = event["position"], event["time_us"]
        if event["type"] not in HOUSEKEEPING:
            self.last_reason = event.get("sentence") or self.last_reason
        handler = _HANDLERS.get(event["type"])
        if handler is not None:
            handler(self, data, event)

    def of(self, data: dict[str, Any]) -> TrialStory | None:
        return self.trials.get(data.get("trial_id", ""))


def _submitted(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    config = data["config"]
    searcher = config["searcher"]
    story.name, story.metric, story.method = config["name"], searcher["metric"], searcher["name"]
    story.smaller_is_better = searcher.get("smaller_is_better", True)
    lengths = {unit: value for unit, value in searcher["max_length"].items() if value is not None}
    story.unit, story.max_length = next(iter(lengths.items()))
    story.state, story.started_us = "active", event["time_us"]


def _requested(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    trial = TrialStory(data["trial_id"], data["trial_number"], data["hyperparameters"], data["target_length"])
    trial.reason = event.get("sentence", "")
    story.trials[trial.id] = trial


def _extended(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        trial.target, trial.reason = data["target_length"], event.get("sentence", "")
        if trial.state == "paused":  # one that is extended before its workers left goes on
            trial.state = "queued" if trial.allocation_id is None else "running"


def _paused(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        trial.state, trial.reason = "paused", event.get("sentence", "")


def _stopped(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        trial.state = trial.outcome = data["outcome"]
        trial.reason = event.get("sentence", "")


def _granted(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        trial.allocation_id = data["allocation_id"]
        if trial.outcome is None:
            trial.state = "starting"
            trial.allocations += 1


def _running(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if (trial := story.of(data)) and trial.outcome is None:
        trial.state = "running"


def _preempted(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if (trial := story.of(data)) and trial.outcome is None:
        trial.state = "preempting"


def _released(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        trial.allocation_id = None
        if trial.outcome is None and trial.state != "paused":
            trial.state = "queued"


def _progressed(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        trial.length, trial.batches = max(trial.length, data["length"]), max(trial.batches, data["batches"])
        if "checkpoint_id" in data:
            trial.checkpoint_id = data["checkpoint_id"]


def _damaged(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        instead = data["resumed_from"]
        then = f"resumed from {instead} instead" if instead else "no earlier one could be used"
        trial.damaged[data["checkpoint_id"]] = f"{data['reason']}; {then}"


def _validated(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    _progressed(story, data, event)
    trial = story.of(data)
    if trial is None or story.metric not in data["metrics"]:
        return
    value = float(data["metrics"][story.metric])
    trial.latest = value
    if math.isfinite(value):
        better = trial.best is None or (value < trial.best if story.smaller_is_better else value > trial.best)
        trial.best = value if better else trial.best


def _failed(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    if trial := story.of(data):
        trial.failures, trial.error = data["failures"], data["error"]


def _ended(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
    story.state = ENDED[event["type"]]
    story.error = data.get("error")


def _state(name: str) -> Any:
    def handler(story: Story, data: dict[str, Any], event: dict[str, Any]) -> None:
        story.state = name

    return handler


_HANDLERS = {
    "ExperimentSubmitted": _submitted,
    "TrialRequested": _requested,
    "TrialExtended": _extended,
    "TrialPaused": _paused,
    "TrialStopped": _stopped,
    "AllocationGranted": _granted,
    "WorkersStarted": _running,
    "AllocationPreempted": _preempted,
    "AllocationResized": _preempted,
    "AllocationReleased": _released,
    "TrialProgressed": _progressed,
    "TrainingEnded": _progressed,
    "CheckpointSaved": _progressed,
    "CheckpointDamaged": _damaged,
    "ValidationReported": _validated,
    "TrialFailed": _failed,
    "ExperimentPauseRequested": _state("paused"),
    "ExperimentResumeRequested": _state("active"),
    "ExperimentCancelRequested": _state("canceling"),
    **dict.fromkeys(ENDED, _ended),
}
