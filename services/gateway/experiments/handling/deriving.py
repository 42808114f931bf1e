"""Makes an experiment from another one, from the record alone: nothing is asked of the user's machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tenuto.kernel.core import Refused
from tenuto.kernel.search_methods import validated
from tenuto.schemas.config import ExperimentConfig, derive
from tenuto.schemas.config.derive import OverrideError, with_validations
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.record import SOURCES_MAX, Parent, TrialSource, hyperparameters_hash
from tenuto.services.gateway.experiments.handling.comparing import Comparing
from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.http.shared_sentences import no_such
from tenuto.services.gateway.trials.adapters.records import Records
from tenuto.services.gateway.trials.views import CheckpointView, TrialView


@dataclass(frozen=True)
class Derived:
    config: ExperimentConfig
    seed: int | None
    """None: to be drawn."""
    context_hash: str
    context_size_bytes: int
    parent: Parent


class Deriving:
    """Raises Refused, OverrideError and ConfigError."""

    def __init__(
        self,
        records: Records,
        views: ExperimentQueries,
        comparing: Comparing,
        contexts: Path,
        user: str,
        owner: Callable[[str, int], str],
        *,
        trust: bool = False,
    ) -> None:
        """`user` asks. `owner`: whose an experiment is, by its submitter and id. `trust`: the pickled state of another user's
        checkpoints may be loaded."""
        self._records, self._views, self._comparing, self._contexts = records, views, comparing, contexts
        self._user, self._owner, self._trust = user, owner, trust

    async def reproduction(self, experiment_id: int, trial_id: str | None) -> Derived:
        submitted = await self._submitted(experiment_id)
        trial = await (self._views.trial(trial_id) if trial_id else self._comparing.main_trial(experiment_id))
        if trial is None or trial.experiment_id != experiment_id:
            raise Refused(f"Experiment {experiment_id} has no {f'trial {trial_id}' if trial_id else 'trial yet'}.", "not_found")
        longest = await self._views.longest_validated(experiment_id, trial.number)
        if longest is None:
            raise Refused(f"Trial {trial.id} was never validated, so there is no result that could be reproduced.")
        raw = derive.reproduction(
            _plain(submitted),
            submitted.seed,
            trial.id,
            trial.hyperparameters,
            trial.seed,
            max(1, longest),
        )
        source = await self._source_of(submitted, trial)
        parent = Parent(
            relation="reproduction",
            experiment_id=experiment_id,
            trial_id=trial.id,
            sources=(source,) if source else (),
            trusted_user=await self._trusted((source,) if source else ()),
            data=await self._records.known_data(trial.id),
        )
        return await self._derived(submitted, raw, parent)

    async def fork(self, experiment_id: int, overrides: Mapping[str, Any]) -> Derived:
        submitted = await self._submitted(experiment_id)
        raw = derive.fork(_plain(submitted), experiment_id, submitted.seed, overrides)
        return await self._derived(submitted, raw, await self._parent("fork", experiment_id))

    async def continuation(self, experiment_id: int, overrides: Mapping[str, Any]) -> Derived:
        submitted = await self._submitted(experiment_id)
        view = await self._views.experiment(experiment_id)
        if view is not None and view.ended_us is None:
            raise Refused(f"Experiment {experiment_id} still runs; continue it when it has ended, or cancel it first.")
        raw = derive.continuation(_plain(submitted), experiment_id, submitted.seed, overrides)
        sources = await self._sources(experiment_id)
        if not sources:
            raise Refused(f"Experiment {experiment_id} kept no checkpoint to go on from; `tenuto exp fork` starts it anew.")
        parent = await self._parent("continuation", experiment_id)
        changes = {"sources": sources, "trusted_user": await self._trusted(sources)}
        derived = await self._derived(submitted, raw, parent.model_copy(update=changes))
        if derived.config.searcher.max_length.unit == submitted.config.searcher.max_length.unit:
            recorded = await self._views.recorded_validations(experiment_id)
            kept = tuple(with_validations(source, recorded.get(source.trial_number, ())) for source in sources)
            derived = replace(derived, parent=derived.parent.model_copy(update={"sources": kept}))
        return derived

    async def _submitted(self, experiment_id: int) -> ExperimentSubmitted:
        submitted = await self._records.submitted(experiment_id)
        if submitted is None and await self._views.exists(experiment_id):
            why = "has unmanaged runs: no configuration and no code of it are on record, from which another one could be made"
            raise Refused(f"Experiment {experiment_id} {why}.", "conflict")
        if submitted is None:
            raise Refused(no_such(f"experiment {experiment_id}"), "not_found")
        view = await self._views.experiment(experiment_id)
        if view is not None and view.deleted_us is not None:
            raise Refused(f"Experiment {experiment_id} is deleted, so no other can be made from it.")
        if not (self._contexts / f"{submitted.context_hash}.tar.gz").is_file():
            raise Refused(
                f"The code of experiment {experiment_id} is gone: contexts/{submitted.context_hash}.tar.gz is not on the shared "
                "directory any more; submit the model directory again with `tenuto exp create`."
            )
        return submitted

    async def _parent(self, relation: Any, experiment_id: int) -> Parent:
        trial = await self._comparing.main_trial(experiment_id)
        data = await self._records.known_data(trial.id) if trial else ()
        return Parent(relation=relation, experiment_id=experiment_id, data=data)

    async def _sources(self, experiment_id: int) -> tuple[TrialSource, ...]:
        """The latest kept checkpoint of each trial."""
        kept = await self._views.checkpoints(experiment_id, False, SOURCES_MAX + 1, latest=True)
        latest = {checkpoint.trial_id: checkpoint for checkpoint in kept}
        if len(latest) > SOURCES_MAX:
            raise Refused(
                f"Experiment {experiment_id} has checkpoints of more than {SOURCES_MAX} trials, and no more can be continued at "
                "once. Reproduce or fork the best of them."
            )
        found = []
        after = 0
        while page := await self._views.trials(experiment_id, after, SOURCES_MAX):
            found += [
                _source(latest[trial.id], trial.number, trial.seed, hyperparameters_hash(trial.hyperparameters))
                for trial in page
                if trial.id in latest
            ]
            after = page[-1].number
        return tuple(found)

    async def _source_of(self, submitted: ExperimentSubmitted, trial: TrialView) -> TrialSource | None:
        """Source that the trial itself started from, for its reproduction, which is trial 1 of its experiment."""
        requested = await self._records.requested(trial.id)
        if requested is not None and requested.source_checkpoint_id:
            checkpoint = await self._views.checkpoint(requested.source_checkpoint_id)
            if checkpoint is None or checkpoint.deleted_us is not None:
                raise Refused(
                    f"Trial {trial.id} started from checkpoint {requested.source_checkpoint_id}, which is deleted, so it cannot "
                    "be reproduced."
                )
            return _source(checkpoint, 1, trial.seed)
        source = submitted.parent.source_of(trial.number, trial.seed, trial.hyperparameters) if submitted.parent else None
        return source.model_copy(update={"trial_number": 1}) if source else None

    async def _trusted(self, sources: tuple[TrialSource, ...]) -> str:
        """Owner of the checkpoints, if it is another user; else empty. A trial that continues from one unpickles what its code
        saved, so it may run another user's code: only with the asker's consent. Raises Refused."""
        if not sources:
            return ""
        experiment_id = experiment_of(sources[0].checkpoint_id)
        submitted = await self._records.submitted(experiment_id)
        owner = self._owner(submitted.user, experiment_id) if submitted is not None else "somebody"
        if owner == self._user:
            return ""
        if not self._trust:
            raise Refused(
                f"Experiment {experiment_id} is {owner}'s: going on from its checkpoints loads what its code pickled, which can "
                "run anything as yours. If you trust it, say so with --trust; `searcher.source_checkpoint` takes only weights.",
                "forbidden",
            )
        return owner

    async def _derived(self, submitted: ExperimentSubmitted, raw: dict[str, Any], parent: Parent) -> Derived:
        config = await asyncio.to_thread(validated, raw)  # a search method's package may run code of its own
        return Derived(
            config=config,
            seed=config.reproducibility.experiment_seed,
            context_hash=submitted.context_hash,
            context_size_bytes=submitted.context_size_bytes,
            parent=parent,
        )


def _plain(submitted: ExperimentSubmitted) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(submitted.config.to_json())
    return document


def _source(checkpoint: CheckpointView, trial_number: int, seed: int, digest: str = "") -> TrialSource:
    return TrialSource(
        trial_number=trial_number,
        seed=seed,
        checkpoint_id=checkpoint.id,
        location=checkpoint.location,
        batches=checkpoint.batches,
        hyperparameters_hash=digest,
    )


__all__ = ["Derived", "Deriving", "OverrideError"]
