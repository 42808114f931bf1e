"""Reads the records of experiments and trials from the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tenuto.kernel.eventlog import EventLog
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentSubmitted, ExperimentTimeLimitReached
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.events.trial import CheckpointSaved, DataRecorded, EnvironmentRecorded, ValidationReported
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.record import DataFingerprint, EnvironmentRecord, KnownData
from tenuto.services.gateway.trials.policies.results import Saved, TrialValidation

PAGE_EVENTS = 500
PAGES_MAX = 200
"""Most pages that one request reads: 100,000 events of one experiment."""
RESULTS_BYTES_MAX = 64 << 20
"""Most bytes of one trial's validations and checkpoints: those 100,000 events, if each has a dozen metrics."""


@dataclass
class TrialStart:
    """One start of a trial."""

    allocation_id: str
    time_us: int
    environment_hash: str | None = None
    data: dict[str, DataFingerprint] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)


class Records:
    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def submitted(self, experiment_id: int) -> ExperimentSubmitted | None:
        async for event in self._events([ExperimentSubmitted.TYPE], stream=f"request/{experiment_id}"):
            if isinstance(event.data, ExperimentSubmitted):
                return event.data
        return None

    async def time_limit_reached(self, experiment_id: int) -> Event | None:
        """Event with which the experiment was canceled for its time limit; None: it was not."""
        async for event in self._events([ExperimentTimeLimitReached.TYPE], stream=f"request/{experiment_id}"):
            return event
        return None

    async def requested(self, trial_id: str) -> TrialRequested | None:
        async for event in self._events([TrialRequested.TYPE], stream=f"search/{experiment_of(trial_id)}"):
            if isinstance(event.data, TrialRequested) and event.data.trial_id == trial_id:
                return event.data
        return None

    async def starts(self, trial_id: str) -> list[TrialStart]:
        """Starts of the trial, in the order of time."""
        found: dict[str, TrialStart] = {}
        async for event in self._events([EnvironmentRecorded.TYPE, DataRecorded.TYPE], stream=f"trial/{trial_id}"):
            data = event.data
            assert isinstance(data, (EnvironmentRecorded, DataRecorded))
            start = found.setdefault(data.allocation_id, TrialStart(data.allocation_id, event.time_us))
            if isinstance(data, EnvironmentRecorded):
                start.environment_hash = data.environment_hash
            else:
                start.data[data.data.name] = data.data
                if data.changed_from is not None and data.data.name not in start.changed:
                    start.changed.append(data.data.name)
        return list(found.values())

    async def environment(self, experiment_id: int, environment_hash: str) -> EnvironmentRecord | None:
        """The record with this hash. It is written out in one event of the experiment, among the first of its kind."""
        async for event in self._events([EnvironmentRecorded.TYPE], correlation_id=str(experiment_id)):
            data = event.data
            if isinstance(data, EnvironmentRecorded) and data.environment_hash == environment_hash and data.environment:
                return data.environment
        return None

    async def results(self, trial_id: str) -> tuple[list[TrialValidation], list[Saved]]:
        """Every validation and every checkpoint, deleted ones too, from the first on as far as RESULTS_BYTES_MAX goes."""
        validations: list[TrialValidation] = []
        saved: list[Saved] = []
        bytes_read = 0
        async for page in self._pages([ValidationReported.TYPE, CheckpointSaved.TYPE], stream=f"trial/{trial_id}"):
            made = await asyncio.to_thread(_results_of, page)
            validations += made[0]
            saved += made[1]
            bytes_read += sum(len(event.payload) for event in page)
            if bytes_read >= RESULTS_BYTES_MAX:
                break
        return validations, saved

    async def known_data(self, trial_id: str) -> tuple[KnownData, ...]:
        """Last records of the trial's declared data, by name."""
        latest: dict[str, DataFingerprint] = {}
        for start in await self.starts(trial_id):
            latest |= start.data
        return tuple(KnownData(name=name, fingerprint=latest[name].fingerprint, recorded_by=trial_id) for name in sorted(latest))

    async def _events(
        self, types: Sequence[str], *, stream: str | None = None, correlation_id: str | None = None
    ) -> AsyncIterator[Event]:
        async for page in self._pages(types, stream=stream, correlation_id=correlation_id):
            for event in page:
                yield event

    async def _pages(
        self, types: Sequence[str], *, stream: str | None = None, correlation_id: str | None = None
    ) -> AsyncIterator[Sequence[Event]]:
        after = 0
        for _ in range(PAGES_MAX):
            page = await self._log.read(after, PAGE_EVENTS, types=types, stream=stream, correlation_id=correlation_id)
            yield page
            if not page.more:
                return
            after = page[-1].position


def _results_of(events: Sequence[Event]) -> tuple[list[TrialValidation], list[Saved]]:
    """Decoded results: half a second for ten thousand, so not on the event loop."""
    validations: list[TrialValidation] = []
    saved: list[Saved] = []
    for event in events:
        data = event.data
        if isinstance(data, ValidationReported):
            validations.append(TrialValidation(data.batches, data.metrics))
        elif isinstance(data, CheckpointSaved):
            saved.append(Saved(data.batches, {file.path: file.sha256 for file in data.files}))
    return validations, saved
