"""Puts together what is on record of two experiments or trials, for the rules that compare them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tenuto.kernel.core import Refused
from tenuto.schemas.base import from_object
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.record import DataFingerprint, EnvironmentRecord
from tenuto.services.gateway.experiments.door import ExperimentsDoor
from tenuto.services.gateway.experiments.policies.differences import Side, differences, gaps
from tenuto.services.gateway.experiments.policies.likely_effect import ConfigDifference
from tenuto.services.gateway.experiments.policies.unmanaged_differences import unmanaged_differences, unmanaged_gaps
from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.experiments.views import DifferenceView, DiffView, FilePairView, MetricPairView, ResultsView
from tenuto.services.gateway.http.context import asking
from tenuto.services.gateway.http.shared_sentences import no_such
from tenuto.services.gateway.read_models.common import numbers
from tenuto.services.gateway.read_models.decision_rows import POINTS_MAX
from tenuto.services.gateway.reader.changes import CodeChange
from tenuto.services.gateway.trials.adapters.records import Records
from tenuto.services.gateway.trials.policies.results import (
    FilePair,
    MetricPair,
    Saved,
    TrialValidation,
    file_pairs,
    first_difference,
    metric_pairs,
    metrics_equal,
    shown_pairs,
    weights_equal,
)
from tenuto.services.gateway.trials.views import TrialView

REFERENCE = re.compile(r"[1-9][0-9]{0,17}(-[1-9][0-9]{0,8})?")
"""An experiment's id, or a trial's."""
EARLIER_MAX = 10
"""Environments of one trial that are looked at, the latest ones: a trial that moves more often moves among a few."""
PAIRS_SHOWN_MAX = 10_000
"""Pairs of metrics in one answer: a megabyte. All are compared."""
Changes = Callable[[Sequence[Path]], Awaitable[list[CodeChange] | None]]
"""Differences between two packed model directories; None if they cannot be found."""


class Comparing:
    def __init__(self, records: Records, views: ExperimentQueries, contexts: Path, changes: Changes) -> None:
        self._records, self._views, self._contexts, self._changes = records, views, contexts, changes

    async def diff(self, a: str, b: str) -> DiffView:
        """Differences of two experiments, of two trials, or of a trial and an experiment's best one. Raises Refused."""
        trials = "-" in a or "-" in b
        # One after the other, so that the same question gets the same refusal.
        (side_a, trial_a), (side_b, trial_b) = await self._side(a, trials), await self._side(b, trials)
        found = await self._differences(side_a, side_b)
        results = await self.results(trial_a, trial_b)
        return DiffView(
            a=side_a.label,
            b=side_b.label,
            differences=tuple(map(difference_view, found)),
            results=results,
            gaps=tuple(unmanaged_gaps(side_a, side_b) if side_a.unmanaged or side_b.unmanaged else gaps(side_a, side_b)),
        )

    async def differences(self, a: str, b: str) -> list[ConfigDifference]:
        (side_a, _), (side_b, _) = await self._side(a, True), await self._side(b, True)
        return await self._differences(side_a, side_b)

    async def _differences(self, a: Side, b: Side) -> list[ConfigDifference]:
        if a.unmanaged or b.unmanaged:
            return unmanaged_differences(a, b)
        changes: list[CodeChange] | None = []
        if a.context_hash != b.context_hash:
            archives = [self._contexts / f"{side.context_hash}.tar.gz" for side in (a, b)]
            changes = await self._changes(archives)
        return differences(a, b, changes)

    async def results(self, a: TrialView | None, b: TrialView | None) -> ResultsView:
        """`a` and `b`: the trials that are compared; None where an experiment has none."""
        metric = ""
        pairs: list[MetricPair] = []
        files: list[FilePair] = []
        if a is not None:
            experiment = await self._views.experiment(a.experiment_id)
            metric = experiment.metric if experiment else ""
        if a is not None and b is not None:
            unmanaged = a.unmanaged or b.unmanaged
            (made_a, saved_a), (made_b, saved_b) = await asyncio.gather(self._made(a, unmanaged), self._made(b, unmanaged))
            pairs = await asyncio.to_thread(metric_pairs, made_a, made_b)
            files = await asyncio.to_thread(file_pairs, saved_a, saved_b)
        return await asyncio.to_thread(_results_view, metric, a, b, pairs, files)

    async def _made(self, trial: TrialView, unmanaged: bool) -> tuple[list[TrialValidation], list[Saved]]:
        """Validations and checkpoints. `unmanaged`: one of the two was; its points are all that can be compared."""
        if not trial.unmanaged:
            validations, saved = await self._records.results(trial.id)
            return validations, [] if unmanaged else saved
        points = await self._views.points(trial.experiment_id, trial.number, (trial.number, -1), POINTS_MAX)
        return await asyncio.to_thread(lambda: [TrialValidation(point.batches, point.metrics) for point in points]), []

    async def main_trial(self, experiment_id: int) -> TrialView | None:
        """The experiment's best trial, else its first one."""
        experiment = await self._views.experiment(experiment_id)
        if experiment is not None and experiment.best_trial_id:
            return await self._views.trial(experiment.best_trial_id)
        first = await self._views.trials(experiment_id, 0, 1)
        return first[0] if first else None

    async def _side(self, reference: str, as_trial: bool) -> tuple[Side, TrialView | None]:
        if not REFERENCE.fullmatch(reference):
            raise Refused(f"{reference!r} names neither an experiment, such as 3, nor a trial, such as 3-1.", "invalid")
        is_trial = "-" in reference
        experiment_id = numbers(reference)[0] if is_trial else int(reference)
        submitted = await self._records.submitted(experiment_id)
        trial = await (self._views.trial(reference) if is_trial else self.main_trial(experiment_id))
        if submitted is None and trial is not None and trial.unmanaged:
            return Side(reference, {}, trial.hyperparameters, 0, seed_chosen=False, unmanaged=True), trial
        if submitted is None:
            raise Refused(no_such(f"experiment {experiment_id}"), "not_found")
        if trial is None and (is_trial or as_trial):
            missing = no_such(f"trial {reference}") if is_trial else f"There is no trial in experiment {experiment_id} yet."
            raise Refused(missing, "not_found")
        return await self._made_side(submitted, trial, as_trial), trial

    async def _made_side(self, submitted: ExperimentSubmitted, trial: TrialView | None, as_trial: bool) -> Side:
        config: dict[str, Any] = json.loads(submitted.config.to_json())
        searcher = config["searcher"]
        origin = submitted.origin
        chosen = config["reproducibility"]["experiment_seed"] is not None and not (origin and origin.seed_drawn)
        pinned = searcher.get("trial_seed")
        environment = None
        earlier: list[EnvironmentRecord] = []
        data: dict[str, DataFingerprint] = {}
        hashes: list[str] = []
        changed: set[str] = set()
        if trial is not None:
            starts = await self._records.starts(trial.id)
            hashes = [start.environment_hash for start in starts if start.environment_hash]
            for start in starts:
                changed |= {
                    name for name in start.data if name in data and data[name].fingerprint != start.data[name].fingerprint
                }
                data |= start.data
            if hashes:
                environment = await self._records.environment(submitted.experiment_id, hashes[-1])
                others = [item for item in dict.fromkeys(hashes) if item != hashes[-1]]
                found = [await self._records.environment(submitted.experiment_id, item) for item in others[-EARLIER_MAX:]]
                earlier = [item for item in found if item is not None]
        own = trial is not None and as_trial
        if own or pinned is not None:
            seed, seed_chosen = (trial.seed if trial else pinned), pinned is not None or chosen
        else:
            seed, seed_chosen = submitted.seed, chosen
        return Side(
            label=trial.id if own and trial else str(submitted.experiment_id),
            config=config,
            hyperparameters=trial.hyperparameters if own and trial else None,
            seed=seed,
            seed_chosen=seed_chosen,
            target_length=trial.target_length if own and trial else None,
            context_hash=submitted.context_hash,
            overrides=origin.overrides if origin else None,
            git=origin.git if origin else None,
            environment=environment,
            earlier_environments=tuple(earlier),
            changed_data=tuple(sorted(changed)),
            data=tuple(data[name] for name in sorted(data)),
        )


def _results_view(
    metric: str, a: TrialView | None, b: TrialView | None, pairs: Sequence[MetricPair], files: Sequence[FilePair]
) -> ResultsView:
    shown = shown_pairs(pairs, PAIRS_SHOWN_MAX)
    return ResultsView(
        metric=metric,
        trial_a=a.id if a else None,
        trial_b=b.id if b else None,
        best_a=a.best_metric if a else None,
        best_b=b.best_metric if b else None,
        metrics=tuple(from_object(MetricPairView, pair) for pair in shown),
        metrics_left_out=len(pairs) - len(shown),
        validations=len({p.batches for p in pairs}),
        first_difference_batches=first_difference(pairs),
        metrics_equal=metrics_equal(pairs),
        weights_equal=weights_equal(files),
        files=tuple(from_object(FilePairView, pair) for pair in files),
    )


def difference_view(item: ConfigDifference) -> DifferenceView:
    return from_object(DifferenceView, item)


def comparing(door: ExperimentsDoor) -> Comparing:
    return Comparing(Records(door.log), door.views, door.contexts, lambda archives: door.reader.changes(archives, asking()))
