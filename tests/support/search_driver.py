"""The searcher's core with one experiment, and what becomes of its trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentTrialLimitsChanged
from tenuto.schemas.events.search import (
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import CheckpointSaved, TrainingEnded, TrialFailed, TrialFinished, ValidationReported
from tenuto.schemas.record import TrialSource
from tests.support.search_world import Recorder, submitted

NAN = math.nan


class Search:
    """Short words for inputs, and for what was decided: `+3` requested, `3>16` extended, `3|` paused, `3x` stopped."""

    def __init__(self, _space: dict[str, Any] | None = None, _sources: Sequence[TrialSource] = (), **searcher: Any) -> None:
        self.recorder = Recorder()
        self.decided = self.recorder.put(submitted(searcher, space=_space, sources=_sources))

    def say(self, data: EventData) -> str:
        self.decided = self.recorder.put(data)
        return self.words()

    def words(self) -> str:
        return " ".join(word(data) for data in self.decided)

    def validate(self, number: int, length: int, loss: float | None) -> str:
        metrics = {"other": 1.0} | ({} if loss is None else {"loss": loss})
        return self.say(ValidationReported(
            trial_id=f"1-{number}", allocation_id="a", batches=length, length=length, metrics=metrics
        ))  # fmt: skip

    def fail(self, number: int, final: bool = True) -> str:
        return self.say(TrialFailed(trial_id=f"1-{number}", allocation_id="a", error="boom", failures=6, final=final))

    def end(self, number: int, length: int, said: str = "early stopping") -> str:
        return self.say(TrainingEnded(trial_id=f"1-{number}", allocation_id="a", batches=length, length=length, said=said))

    def refuse(self, number: int) -> str:
        return self.say(TrialFailed(
            trial_id=f"1-{number}", allocation_id="a", error="too wide", failures=1, final=True, invalid_hyperparameters=True
        ))  # fmt: skip

    def save(self, number: int, length: int) -> str:
        return self.say(CheckpointSaved(
            trial_id=f"1-{number}", allocation_id="a", checkpoint_id=f"1-{number}@{length}", batches=length, length=length,
            files=(), size_bytes=0, location="file:///x",
        ))  # fmt: skip

    def limit(self, **limits: int) -> str:
        return self.say(ExperimentTrialLimitsChanged(experiment_id=1, **limits))

    def finish(self, *numbers: int) -> str:
        return " ".join(filter(None, [
            self.say(TrialFinished(trial_id=f"1-{n}", batches=0, length=0, checkpoint_id=None)) for n in numbers
        ]))  # fmt: skip

    def cancel(self) -> str:
        return self.say(ExperimentCancelRequested(experiment_id=1))


def word(data: EventData) -> str:
    number = getattr(data, "trial_id", "-").split("-")[1]
    match data:
        case TrialRequested():
            return f"+{number}"
        case TrialExtended():
            return f"{number}>{data.target_length}"
        case TrialPaused():
            return f"{number}|"
        case TrialStopped():
            return f"{number}x{data.outcome}"
        case _:
            return data.TYPE


def asha(trials: int, concurrent: int, divisor: int = 4, mode: str = "promotion", **more: Any) -> Search:
    return Search(
        name="asha", max_trials=trials, max_concurrent_trials=concurrent, divisor=divisor, mode=mode,
        **{"max_length": {"epochs": 16}} | more,
    )  # fmt: skip
