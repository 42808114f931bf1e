"""The sweep: finds and removes stored files that were never recorded, the traces of processes that died between storing and
reporting.

A file is an orphan if all of this holds: the log does not know its checkpoint (or knows that it was deleted, alone or with its
experiment), no recorded checkpoint uses it, it is older than a bound, and it was not stored for a live allocation. A report of
any other allocation would be refused, so an orphan stays one. The store is listed before the log is read, so a checkpoint that is
recorded in between is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tenuto.kernel.eventlog import READ_EVENTS_MAX, EventLog
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged
from tenuto.kernel.storage.manifest import BLOBS, MANIFESTS, writer_of
from tenuto.kernel.storage.store import Entry, Store, StoreError
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.events.request import ExperimentDeleted, ExperimentSubmitted
from tenuto.schemas.events.trial import CheckpointDeleted, CheckpointSaved

LiveAllocation = Callable[[str], str | None]
"""Function from a trial's id to the id of its live allocation."""


@dataclass(frozen=True)
class Orphan:
    experiment_id: int
    url: str
    size_bytes: int
    reason: str


@dataclass
class Sweep:
    orphans: list[Orphan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Stores that could not be read, and trials in which orphans cannot be told apart."""

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.orphans)


async def experiments(log: EventLog, after: int = 0) -> tuple[dict[int, str], int]:
    """Store of every experiment recorded after that position, and the position reached."""
    found: dict[int, str] = {}
    while True:
        events = await log.read(after, READ_EVENTS_MAX, types=[ExperimentSubmitted.TYPE])
        for event in events:
            if isinstance(event.data, ExperimentSubmitted):
                found[event.data.experiment_id] = event.data.config.checkpoint_storage.store
            after = event.position
        if not events.more:
            return found, after


async def sweep(
    log: EventLog,
    stores: Stores,
    used: Mapping[int, str],
    live: LiveAllocation,
    older_than_us: int,
    *,
    dry_run: bool,
) -> Sweep:
    """Sweeps one experiment after the other. `used`: name of each experiment's store. A store that cannot be reached is a
    problem in the result, and the others are swept."""
    result = Sweep()
    for experiment_id in sorted(used):
        try:
            store = stores.open(used[experiment_id], str(experiment_id))
            by_trial = await asyncio.to_thread(_by_trial, store)
            recorded = await _recorded(log, experiment_id) if by_trial else {}
            for trial_id in sorted(by_trial):
                part = _TrialSweep(
                    store,
                    experiment_id,
                    trial_id,
                    recorded.get(trial_id, frozenset()),
                    live(trial_id),
                    older_than_us,
                    partial(stores.open, used[experiment_id], f"{experiment_id}/{trial_id}"),
                )
                await asyncio.to_thread(part.sweep, by_trial[trial_id], result, dry_run)
            for name in await asyncio.to_thread(store.delete_unfinished, older_than_us, dry_run):
                result.orphans.append(Orphan(experiment_id, f"{store.url}/{name}", 0, "its upload was cut off"))
        except StoreError as error:
            result.problems.append(f"experiment {experiment_id}: {error}")
    return result


def _by_trial(store: Store) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in store.entries(""):
        trial_id, slash, _ = entry.key.partition("/")
        if slash:
            found.setdefault(trial_id, []).append(entry)
    return found


async def _recorded(log: EventLog, experiment_id: int) -> dict[str, frozenset[str]]:
    """Checkpoints that are recorded and not deleted, by trial."""
    found: dict[str, set[str]] = {}
    after = 0
    types = [CheckpointSaved.TYPE, CheckpointDeleted.TYPE, ExperimentDeleted.TYPE]
    while True:
        events = await log.read(after, READ_EVENTS_MAX, types=types, correlation_id=str(experiment_id))
        for event in events:
            data = event.data
            if isinstance(data, CheckpointSaved):
                found.setdefault(data.trial_id, set()).add(data.checkpoint_id)
            elif isinstance(data, CheckpointDeleted):
                found.setdefault(data.trial_id, set()).discard(data.checkpoint_id)
            elif isinstance(data, ExperimentDeleted):
                found.clear()
            after = event.position
        if not events.more:
            return {trial_id: frozenset(ids) for trial_id, ids in found.items()}


@dataclass(frozen=True)
class _TrialSweep:
    store: Store
    experiment_id: int
    trial_id: str
    recorded: frozenset[str]
    live: str | None
    older_than_us: int
    open_trial: Callable[[], Store]

    def sweep(self, entries: Iterable[Entry], result: Sweep, dry_run: bool) -> None:
        """Sweeps one trial. Raises StoreError."""
        manifests, blobs = self._sorted(entries)
        gone = [entry for entry in manifests if self._is_orphan(entry, writer_of(self._below(entry)))]
        suspects = [entry for entry in blobs if self._is_orphan(entry, writer_of(self._below(entry)))]
        if suspects:
            kept = {writer_of(self._below(entry)) for entry in manifests} - {writer_of(self._below(entry)) for entry in gone}
            try:
                used = self._used_by(kept)
                gone += [entry for entry in suspects if self._below(entry) not in used]
            except Damaged as error:
                result.problems.append(f"trial {self.trial_id}: its files are left alone: {error}")
        result.orphans += [
            Orphan(self.experiment_id, f"{self.store.url}/{entry.key}", entry.size_bytes, self._reason(entry)) for entry in gone
        ]
        if not dry_run:
            self.store.delete([entry.key for entry in gone])

    def _sorted(self, entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Manifests and blobs among the entries; other files are not Tenuto's and are left alone."""
        kinds: dict[str, list[Entry]] = {MANIFESTS: [], BLOBS: []}
        for entry in entries:
            kinds.get(self._below(entry).partition("/")[0], []).append(entry)
        return kinds[MANIFESTS], kinds[BLOBS]

    def _below(self, entry: Entry) -> str:
        return entry.key[len(self.trial_id) + 1 :]

    def _is_orphan(self, entry: Entry, checkpoint_id: str) -> bool:
        under_way = self.live is not None and checkpoint_id.startswith(f"{self.live}-")
        return checkpoint_id not in self.recorded and not under_way and entry.modified_us < self.older_than_us

    def _used_by(self, kept: Iterable[str]) -> set[str]:
        """Blobs that these checkpoints use. Raises Damaged if a manifest cannot be read."""
        store = self.open_trial()
        return {file.blob for checkpoint_id in sorted(kept) for file in checkpoints.read_manifest(store, checkpoint_id).files}

    def _reason(self, entry: Entry) -> str:
        if self._below(entry).startswith(f"{BLOBS}/"):
            return "no recorded checkpoint uses it"
        return "it was never recorded, or its deletion was cut off"
