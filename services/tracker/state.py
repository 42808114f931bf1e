"""State of the tracker, as needed to judge the next report: live experiments and their unfinished trials.

A trial enters with TrialRequested and leaves with TrialFinished; an experiment leaves, with whatever trials it still has, when
the search has ended it. So the state grows with live work, not with history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from immutables import Map

from tenuto.kernel.codec import DERIVED
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.fast_replace import replaced
from tenuto.services.tracker.policies.restart_limits import Ends

ENVIRONMENTS_MAX = 100
"""Environments of one experiment that are written out once; further ones are written out each time."""
CheckpointPolicy = Literal["best", "all", "none"]


@dataclass(frozen=True)
class Checkpoint:
    """A saved checkpoint that has not been deleted."""

    checkpoint_id: str
    batches: int
    length: int


@dataclass(frozen=True)
class Ranked:
    """A checkpoint of a finished trial that is among the experiment's best."""

    metric: float
    trial_id: str
    checkpoint_id: str
    own: bool
    """The rules for its trial keep it, too."""


@dataclass(frozen=True)
class Trial:
    trial_id: str
    allocation_id: str | None = None
    """The current allocation: granted and not released. Reports of any other are refused."""
    stopped: bool = False
    """The search gives it no more budget."""
    failed: bool = False
    """True once a final TrialFailed is recorded."""
    exited: bool = False
    """The current allocation's workers have left."""
    ended: bool = False
    """True once TrainingEnded is recorded: it trains no further, and the search is about to stop it."""
    ends: Ends = field(default_factory=Ends)
    """Ends of its workers, as far as they count."""
    advanced: bool = False
    """The current allocation has saved a checkpoint behind the one before it, or validated."""
    agents: tuple[str, ...] = ()
    """Agents of the current allocation, or of the last one."""
    blamed: bool = False
    """True: a log policy blames an agent for what the current allocation printed."""
    batches: int = 0
    length: int = 0
    """The furthest point that was ever reported."""
    run_batches: int = -1
    """The last progress of the current allocation; after a resume it may be behind `batches`."""
    validations: Map[int, float] = field(default_factory=Map)
    """Searcher metric by batches trained; NaN where it was missing."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints in the order they were saved: the trial resumes from the last one."""
    kept: Map[str, bool] = field(default_factory=Map, metadata=DERIVED)
    """Ids of `checkpoints`: a trial may keep all it ever saved, and each report asks for one of them."""
    deleted: Map[str, bool] = field(default_factory=Map)
    """Ids of deleted checkpoints: a repeated report must not bring one back."""
    damaged: tuple[str, ...] = ()
    """Ids of the checkpoints that a run could not resume from, in the order found."""
    source: str | None = None
    """The checkpoint of another trial that it starts from, as long as it has none of its own."""

    @property
    def over(self) -> bool:
        """True if it is not trained any more: an end of its workers is no failure."""
        return self.stopped or self.failed or self.ended


@dataclass(frozen=True)
class Experiment:
    experiment_id: int
    pool: str
    metric: str
    smaller_is_better: bool
    checkpoint_policy: CheckpointPolicy
    max_restarts: int
    store: str = SHARED_STORE
    """Name of the store that its checkpoints go to."""
    trials: Map[str, Trial] = field(default_factory=Map)
    environments: tuple[str, ...] = ()
    """Hashes of the environments that are written out in the record of this experiment, sorted."""
    save_experiment_best: int = 0
    save_trial_best: int = 1
    save_trial_latest: int = 1
    ranked: tuple[Ranked, ...] = ()
    """The best checkpoints that finished trials left, at most `save_experiment_best`, the best first."""
    sources: Map[str, int] = field(default_factory=Map)
    """Checkpoints that trials start from which have none of their own yet, with how many such trials there are."""
    held: Map[str, str] = field(default_factory=Map)
    """Checkpoints among `sources` that are kept only as such and whose own trial is over, with that trial: deleted once no
    longer used."""


@dataclass(frozen=True)
class State:
    experiments: Map[int, Experiment] = field(default_factory=Map)
    pool_versions: Map[str, int] = field(default_factory=Map)
    """Events folded of each stream `pool/<pool>`, by stream. All of its types are consumed, so this is its version."""

    def experiment(self, experiment_id: int) -> Experiment | None:
        return self.experiments.get(experiment_id)

    def trial(self, experiment_id: int, trial_id: str) -> Trial | None:
        experiment = self.experiments.get(experiment_id)
        return experiment.trials.get(trial_id) if experiment else None


def initial() -> State:
    return State()


def derive(state: State) -> State:
    """State with the derived fields of each trial computed anew."""
    experiments = {key: _derived(state.experiments[key]) for key in sorted(state.experiments)}
    return replaced(state, experiments=Map(experiments))


def _derived(experiment: Experiment) -> Experiment:
    trials = [experiment.trials[key] for key in sorted(experiment.trials)]
    kept = [replaced(trial, kept=Map({item.checkpoint_id: True for item in trial.checkpoints})) for trial in trials]
    return replaced(experiment, trials=Map({trial.trial_id: trial for trial in kept}))


def check(state: State) -> None:
    """Assert what must hold after every event."""
    for experiment_id in sorted(state.experiments):
        experiment = state.experiments[experiment_id]
        assert experiment.experiment_id == experiment_id
        assert len(experiment.ranked) <= experiment.save_experiment_best
        assert all(key in experiment.sources for key in experiment.held)
        waiting = [key for key in sorted(experiment.trials) if experiment.trials[key].source is not None]
        assert sum(experiment.sources[key] for key in sorted(experiment.sources)) == len(waiting)
        for trial_id in sorted(experiment.trials):
            trial = experiment.trials[trial_id]
            ids = [checkpoint.checkpoint_id for checkpoint in trial.checkpoints]
            assert trial.trial_id == trial_id
            assert sorted(ids) == sorted(trial.kept)
            assert len(ids) == len(set(ids)), f"trial {trial_id} holds a checkpoint twice"
            assert not any(checkpoint_id in trial.deleted for checkpoint_id in ids), (
                f"trial {trial_id} holds a deleted checkpoint"
            )
            assert trial.batches >= max((checkpoint.batches for checkpoint in trial.checkpoints), default=0)
            assert set(trial.damaged) <= set(ids)
            assert 0 <= trial.ends.deaths <= trial.ends.fruitless
            assert trial.ends.failures >= 0
            assert not (trial.exited and trial.allocation_id is None)
