"""Population-based training: Jaderberg et al., "Population Based Training of Neural Networks", 2017,
https://arxiv.org/abs/1711.09846.

exploit is truncation selection (section 4.1.1): after each generation the worst `truncate_fraction` of the population are
stopped, and as many copies of trials drawn from the best `truncate_fraction` go on from their checkpoints. explore is the
paper's perturb and resample: each hyperparameter is drawn anew with `resample_probability`, else a number is multiplied by 1 -
or 1 + `perturb_factor` (0.8 or 1.2, as in the paper) within its range; a category stays. The paper's 20 % and its factors are
the defaults.

Generations are in step, where the paper's workers are not: a generation is compared when it is complete. So no order of arrival
changes the search, and a population may be larger than the slots.

A copy is a trial of its own (`parent_trial_id`, `source_checkpoint_id`), so the lineage is in the record and each trial has one
set of hyperparameters from start to end. Of a parent that has saved no checkpoint the copy has the changed hyperparameters only,
and trains anew (`anew` in its reason): a population stays as large as it is. If the model code refuses the hyperparameters of a
copy, another copy of the same parent takes its place, and its generation waits for it. A trial whose own code ends its training
counts in its generation by its last validation, and a copy of one of the best takes its place in the next.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from tenuto.schemas.config import (
    CategoricalHyperparameter,
    DoubleHyperparameter,
    IntHyperparameter,
    LogHyperparameter,
    PbtSearcher,
)
from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.config.ranges import below, power, steps, value_at
from tenuto.schemas.config.searcher_base import TRIALS_MAX
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.rungs import Survives, Truncated, WaitsForGeneration
from tenuto.schemas.sentences.search import Copied
from tenuto.services.searcher.methods.base import Proposal, Rules, unsatisfiable
from tenuto.services.searcher.methods.reasons import ComparedNumbers, at_rung, completed, metric_value, scored
from tenuto.services.searcher.methods.sampling import Leaf, configuration, draw_bits, fill, in_use, leaves, read
from tenuto.services.searcher.methods.versions import KEEPS_POPULATION
from tenuto.services.searcher.state import Experiment, PlanPoint, Remembers, Trial
from tenuto.services.searcher.state.ranking import Key


class Pbt(Rules[PbtSearcher]):
    @cached_property
    def brackets(self) -> tuple[Bracket, ...]:
        one = self.settings
        total = one.max_length.value
        parts = min(one.generations, total)
        return (Bracket(one.population_size, tuple(total * (index + 1) // parts for index in range(parts))),)

    @property
    def replaced(self) -> int:
        """Trials that are replaced after each generation."""
        return max(1, int(self.settings.population_size * self.settings.truncate_fraction))

    @property
    def trials_max(self) -> int:
        # The whole population may be lost in each generation but for one.
        return self.settings.population_size * len(self.brackets[0].lengths)

    @property
    def problem(self) -> str | None:
        if self.trials_max > TRIALS_MAX:
            return (
                f"population_size times generations is {self.trials_max:,}, but may be at most {TRIALS_MAX:,}; lower one of them."
            )
        return unsatisfiable(self.settings, self.space)

    @property
    def remembers(self) -> Remembers:
        return "living"

    @property
    def keeps_places(self) -> bool:
        return True

    def best_max(self, trials: int) -> int:
        return self.settings.population_size

    # -- the generation that is complete, if one is

    def _generation(self, experiment: Experiment) -> int | None:
        """Index of the complete generation whose successors are not all chosen yet; None: one is still training."""
        if experiment.vacant and experiment.wants_trials:
            return None
        for index in range(len(experiment.lengths)):
            rung = experiment.rungs[index]
            if index == 0 and rung.started < self.settings.population_size and experiment.wants_trials:
                return None
            if rung.size < rung.entered:
                return None
            if index == len(experiment.lengths) - 1:
                return None
            if self._copies(experiment, index) > 0 or self._survivors(experiment, index):
                return index
        return None

    def _survivors(self, experiment: Experiment, index: int) -> list[Key]:
        """Waiting trials that are not among the worst."""
        rung = experiment.rungs[index]
        limit = self._kept(experiment, index)
        return [key for key in rung.waiting if rung.best.rank(key) < limit]

    def _kept(self, experiment: Experiment, index: int) -> int:
        """Number of best trials that go on."""
        return max(1, experiment.rungs[index].size - self.replaced)

    def _copies(self, experiment: Experiment, index: int) -> int:
        """Number of copies still to be made; 0 if no trial has a metric."""
        rung = experiment.rungs[index]
        if not rung.best or not experiment.wants_trials or not self._parents(experiment, index):
            return 0
        if self.rule_version >= KEEPS_POPULATION:
            go_on = len(self._survivors(experiment, index)) + experiment.rungs[index + 1].entered
            return max(0, self.settings.population_size - go_on)
        kept = min(self._kept(experiment, index), len(rung.best))
        return max(0, self.settings.population_size - kept - experiment.rungs[index + 1].started)

    def _parents(self, experiment: Experiment, index: int) -> list[int]:
        """The best of the generation, as far as they are there, those with a checkpoint before all others; if none of them is,
        the best that are there."""
        if self.rule_version < KEEPS_POPULATION:
            return self._saved_parents(experiment, index)
        there = [number for _, number in experiment.rungs[index].best if self._waits(experiment, number, index)]
        top = {number for _, number in experiment.rungs[index].best[: self.replaced]}
        found = [number for number in there if number in top] or there[: self.replaced]
        return [number for number in found if experiment.trials[number].checkpoint_id is not None] or found

    @staticmethod
    def _waits(experiment: Experiment, number: int, index: int) -> bool:
        """True if the trial waits at this generation, or at a later one where it was already."""
        trial = experiment.trials.get(number)
        return trial is not None and trial.status == "paused" and trial.rung >= index

    def _saved_parents(self, experiment: Experiment, index: int) -> list[int]:
        best = experiment.rungs[index].best[: self.replaced]
        return [
            number
            for _, number in best
            if (trial := experiment.trials.get(number)) is not None
            and trial.checkpoint_id is not None
            and trial.status == "paused"
            and trial.rung == index
        ]

    # -- decisions

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        if experiment.vacant:
            vacant = experiment.vacant[0]
            return self.again(experiment, vacant) if vacant.parent is None else self._copy_again(experiment, vacant)
        number = experiment.next_place
        if experiment.rungs[0].started < self.settings.population_size:
            hyperparameters = self.hyperparameters(experiment.seed, number)
            return None if hyperparameters is None else Proposal(hyperparameters, key=number)
        index = self._generation(experiment)
        if index is None or self._copies(experiment, index) == 0:
            return None
        return self._copy(experiment, index, number)

    def _copy(self, experiment: Experiment, index: int, number: int) -> Proposal | None:
        parents = self._parents(experiment, index)
        parent = parents[below(len(parents), draw_bits(experiment.seed, number, "pbt.parent"))]
        hyperparameters = self._changed(experiment.memory[parent], experiment.seed, number)
        trial = experiment.trials[parent]
        rank, score = next(
            (rank, score) for rank, (score, number) in enumerate(experiment.rungs[index].best, start=1) if number == parent
        )
        return Proposal(
            hyperparameters,
            rung=index + 1,
            rule=Copied,
            numbers={
                "generation": index,
                "parent_rank": rank,
                "of": experiment.rungs[index].size,
                "parent_metric": metric_value(experiment, score),
                "metric_name": experiment.metric,
                "anew": trial.checkpoint_id is None,
            },
            source_checkpoint_id=trial.checkpoint_id,
            parent=parent,
            key=number,
        )

    def _copy_again(self, experiment: Experiment, vacant: PlanPoint) -> Proposal:
        assert vacant.hyperparameters is not None
        assert vacant.parent is not None
        return Proposal(
            self._changed(vacant.hyperparameters, experiment.seed, vacant.key),
            rung=vacant.rung,
            rule=Copied,
            numbers={"generation": vacant.rung - 1, "replaces": vacant.refused, "anew": vacant.checkpoint_id is None},
            source_checkpoint_id=vacant.checkpoint_id,
            parent=vacant.parent,
            key=vacant.key,
        )

    def _changed(self, parents: str, seed: int, number: int) -> dict[str, Any]:
        """The parent's hyperparameters (JSON), explored from."""
        origin: dict[str, Any] = json.loads(parents)
        found = configuration(
            # A starting point is where the search begins, not where a copy goes.
            self.settings.model_copy(update={"starting_points": []}),
            self.space,
            number,
            lambda attempt: self.explored(origin, seed, number, attempt),
        )
        return origin if found is None else found

    def explored(self, origin: dict[str, Any], seed: int, number: int, attempt: int) -> dict[str, Any]:
        values = {}
        for path, leaf in leaves(self.space):
            bits = draw_bits(seed, number, f"pbt.explore/{attempt}", path)
            fresh = value_at(leaf, draw_bits(seed, number, f"pbt.resample/{attempt}", path))
            try:
                value = read(origin, path)
            except KeyError:
                values[path] = fresh  # it was not in use in the parent
                continue
            # The upper half of the draw and its lowest bit are independent, so one draw answers both questions.
            resample = (bits >> 64) < int(self.settings.resample_probability * (1 << 64))
            values[path] = fresh if resample else perturbed(leaf, value, self.settings.perturb_factor, up=bool(bits & 1))
        return fill(self.space, in_use(self.space, values))

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped:
        if experiment.is_top(trial.rung):
            return completed(experiment, trial)
        if trial.key is None:
            return self.worst(experiment, trial)
        why = WaitsForGeneration(
            **scored(experiment, trial.score),
            **at_rung(experiment, trial.rung),
            arrived=experiment.rungs[trial.rung].size,
            of=self.settings.population_size,
        )
        return TrialPaused(experiment_id=experiment.id, trial_id=experiment.trial_id(trial.number), reason=why.reason())

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        index = self._generation(experiment)
        # Copies first: who trains on may lose the checkpoint that a copy is to begin from.
        if index is None or self._copies(experiment, index) > 0:
            return None
        survivors = self._survivors(experiment, index)
        if not survivors:
            return None
        key = survivors[0]
        return TrialExtended(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            target_length=experiment.lengths[index + 1],
            reason=Survives(**self._numbers(experiment, index, key)).reason(),
        )

    def hopeless(self, experiment: Experiment, rung: int) -> TrialStopped | None:
        here = experiment.rungs[rung]
        if self._generation(experiment) != rung or not here.waiting:
            return None
        key = here.waiting[-1]
        if here.best.rank(key) < self._kept(experiment, rung):
            return None
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            outcome="early_stopped",
            reason=Truncated(**self._numbers(experiment, rung, key), replaced=self.replaced).reason(),
        )

    def _numbers(self, experiment: Experiment, index: int, key: Key) -> ComparedNumbers:
        rung, kept = experiment.rungs[index], self._kept(experiment, index)
        return {
            **scored(experiment, key[0]),
            **at_rung(experiment, index),
            "rank": rung.best.rank(key) + 1,
            "of": rung.size,
            "top": kept,
            "cut_off": metric_value(experiment, rung.best[kept - 1][0]) if kept <= len(rung.best) else None,
        }


def perturbed(leaf: Leaf, value: Any, factor: float, *, up: bool) -> Any:
    """A number a little larger or smaller, inside its range; anything else as it is."""
    if isinstance(leaf, IntHyperparameter):
        step = leaf.step or 1
        size = max(step, int(abs(value) * factor) // step * step)
        return max(leaf.minval, min(leaf.minval + step * (steps(leaf) - 1), value + size if up else value - size))
    if isinstance(leaf, (DoubleHyperparameter, LogHyperparameter)) and leaf.step is not None:
        return value  # The steps are the user's: a value between two of them is none. It changes by being drawn anew.
    if isinstance(leaf, DoubleHyperparameter):
        return max(leaf.minval, min(leaf.maxval, value * (1 + factor if up else 1 - factor)))
    if isinstance(leaf, LogHyperparameter):
        low, high = sorted((power(leaf.base, leaf.minval), power(leaf.base, leaf.maxval)))
        return max(low, min(high, value * (1 + factor if up else 1 - factor)))
    assert isinstance(leaf, CategoricalHyperparameter) or leaf.type == "const"
    return value
