"""Search methods and their settings. The rules of each method are in `services/searcher/methods/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Discriminator, Field, GetJsonSchemaHandler, Tag
from pydantic_core import CoreSchema

from tenuto.schemas.base import Model
from tenuto.schemas.config.brackets import Bracket, adaptive_brackets, hyperband_brackets, rung_lengths
from tenuto.schemas.config.searcher_base import CONCURRENT_TRIALS_MAX, ManyTrials, SearcherBase

MODEL_TRIALS_MAX = 10_000
"""Most trials of a method that fits a model to all results; such a method is slow long before."""


class SingleSearcher(SearcherBase):
    """One trial with the given hyperparameters."""

    ONE_TRIAL: ClassVar[bool] = True

    name: Literal["single"]
    trial_seed: int | None = Field(default=None, ge=0, lt=2**63)
    """Seed of the trial, to repeat a trial of another search. None: derived from the experiment's seed."""


class RandomSearcher(ManyTrials):
    """`max_trials` independent draws, each trained for `max_length`."""

    MAX_TRIALS_CHANGES: ClassVar[bool] = True

    name: Literal["random"]


class SobolSearcher(ManyTrials):
    """Like random, but the draws are a shifted Sobol sequence, which fills the space more evenly (Joe and Kuo 2008)."""

    MAX_TRIALS_CHANGES: ClassVar[bool] = True

    name: Literal["sobol"]


class GridSearcher(SearcherBase):
    """Every combination: `count` points per range, each value of a categorical."""

    POINTS_ARE_GIVEN: ClassVar[bool] = True

    name: Literal["grid"]
    max_concurrent_trials: int = Field(default=16, ge=1, le=CONCURRENT_TRIALS_MAX)
    """Most trials that run at once."""


RUNGS_DEFAULT = 5
"""Most rungs where the configuration does not say."""


class _Halving(ManyTrials):
    COMPARES_AT_RUNGS: ClassVar[bool] = True

    divisor: int = Field(default=4, ge=2, le=100)
    """eta: one in `divisor` goes on to the next rung."""
    max_rungs: int = Field(default=RUNGS_DEFAULT, ge=1, le=20)
    """Most rungs. The length of rung k below the last is max_length / divisor**k."""
    min_rung_length: int | None = Field(default=None, ge=1, exclude_if=lambda value: value is None)
    """Least length of a rung, in the unit of `max_length`: shorter ones are left out. Default, written down at submission: 32
    optimizer steps, but no more than max_length / divisor. In epochs, or with `max_rungs` given: 1."""
    average_validations: int = Field(default=1, ge=1, le=100, exclude_if=lambda value: value == 1)
    """Number of validations, since the trial was last compared, whose mean is compared below the full length; a larger number
    reduces noise. Set min_validation_period so that there are as many between two rungs."""

    @property
    def brackets(self) -> tuple[Bracket, ...]:
        lengths = rung_lengths(self.max_length.value, self.divisor, self.max_rungs, self.min_rung_length)
        return (Bracket(self.max_trials, lengths),)


class ShaSearcher(_Halving):
    """Synchronous successive halving (Jamieson and Talwalkar, AISTATS 2016): trials of a rung are compared when all have
    arrived."""

    name: Literal["sha"]


class HyperbandSearcher(SearcherBase):
    """Hyperband (Li et al., JMLR 2018): brackets of successive halving, from many short trials to few long ones."""

    COMPARES_AT_RUNGS: ClassVar[bool] = True

    name: Literal["hyperband"]
    divisor: int = Field(default=3, ge=2, le=100)
    """eta: one in `divisor` goes on to the next rung. 3 is the paper's."""
    max_rungs: int = Field(default=RUNGS_DEFAULT, ge=1, le=20)
    """Most rungs of the longest bracket, and number of brackets: s_max + 1 in the paper."""
    min_rung_length: int | None = Field(default=None, ge=1, exclude_if=lambda value: value is None)
    """Least length of a rung, in the unit of `max_length`: shorter ones are left out, and with each a bracket. Default, written
    down at submission: 32 optimizer steps, but no more than max_length / divisor. In epochs, or with `max_rungs` given: 1."""
    iterations: int = Field(default=1, ge=1, le=1000)
    """Number of times that all brackets are run, each time with new configurations."""
    average_validations: int = Field(default=1, ge=1, le=100, exclude_if=lambda value: value == 1)
    """Number of validations, since the trial was last compared, whose mean is compared below the full length; a larger number
    reduces noise. Set min_validation_period so that there are as many between two rungs."""
    max_concurrent_trials: int = Field(default=16, ge=1, le=CONCURRENT_TRIALS_MAX)
    """Most trials that run at once."""

    @property
    def brackets(self) -> tuple[Bracket, ...]:
        return hyperband_brackets(self.max_length.value, self.divisor, self.max_rungs, self.iterations, self.min_rung_length)


class AshaSearcher(_Halving):
    """Asynchronous successive halving (Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020)."""

    MAX_TRIALS_CHANGES: ClassVar[bool] = True

    name: Literal["asha"]
    mode: Literal["promotion", "stopping"] = "promotion"
    """promotion: a trial waits at its rung and goes on when it is in the top 1/divisor (Algorithm 2 of the paper). stopping: a
    trial goes on at once unless it is outside the top 1/divisor of those seen so far; only the first trial at a rung waits,
    for a second one."""


class AdaptiveAshaSearcher(_Halving):
    """ASHA in several brackets at once, which begin to compare at different lengths: Hyperband's hedge without its waiting."""

    MAX_TRIALS_CHANGES: ClassVar[bool] = True

    name: Literal["adaptive_asha"]
    mode: Literal["conservative", "standard", "aggressive"] = "standard"
    """conservative: brackets of 1, 2, ..., `max_rungs` rungs. standard: the upper half of these. aggressive: the longest only."""
    stop_once: bool = False
    """False: promotion form in each bracket. True: stopping form, which never pauses a trial."""

    @property
    def brackets(self) -> tuple[Bracket, ...]:
        return adaptive_brackets(
            self.max_length.value, self.divisor, self.max_rungs, self.max_trials, self.mode, self.min_rung_length
        )


class BohbSearcher(_Halving):
    """ASHA whose new configurations come from a model of the good and the bad ones so far (Falkner et al., ICML 2018)."""

    MAX_TRIALS_CHANGES: ClassVar[bool] = True

    name: Literal["bohb"]
    max_trials: int = Field(ge=1, le=MODEL_TRIALS_MAX)
    mode: Literal["promotion", "stopping"] = "promotion"
    """promotion or stopping, as for asha."""
    random_fraction: float = Field(default=1 / 3, ge=0, le=1)
    """rho: fraction of the configurations drawn at random, so that no region is given up for ever."""
    top_fraction: float = Field(default=0.15, gt=0, lt=1)
    """gamma: fraction of the results that counts as good."""
    candidates: int = Field(default=64, ge=1, le=1000)
    """N_s: number of candidates drawn from the model of the good results; the one with the best ratio of good to bad is taken."""


class PbtSearcher(SearcherBase):
    """Population-based training (Jaderberg et al., 2017), in generations: the worst are replaced by copies of the best, from
    their checkpoints and with changed hyperparameters."""

    DERIVES: ClassVar[bool] = True

    name: Literal["pbt"]
    population_size: int = Field(default=20, ge=2, le=CONCURRENT_TRIALS_MAX)
    """Number of trials that are trained side by side and compared."""
    generations: int = Field(default=10, ge=1, le=1000)
    """Number of equal parts of max_length; the population is compared between two of them."""
    truncate_fraction: float = Field(default=0.2, gt=0, le=0.5)
    """Fraction of the population that is replaced after each generation, by copies of as many of the best."""
    resample_probability: float = Field(default=0.25, ge=0, le=1)
    """Probability that a copied hyperparameter is drawn anew instead of being changed a little."""
    perturb_factor: float = Field(default=0.2, gt=0, lt=1)
    """Change of a copied number: it is multiplied by 1 - perturb_factor or 1 + perturb_factor."""
    max_concurrent_trials: int = Field(default=16, ge=1, le=CONCURRENT_TRIALS_MAX)
    """Most trials that run at once."""


class _Sampled(ManyTrials):
    MAX_TRIALS_CHANGES: ClassVar[bool] = True
    SAMPLED: ClassVar[bool] = True

    max_trials: int = Field(ge=1, le=MODEL_TRIALS_MAX)
    max_concurrent_trials: int = Field(default=4, ge=1, le=CONCURRENT_TRIALS_MAX)
    """Most trials that run at once. Each is proposed without the results of the others, so many at once learn less."""
    startup_trials: int = Field(default=10, ge=1, le=1000)
    """Number of random configurations before the model proposes."""


class TpeSearcher(_Sampled):
    """Tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), by Optuna's sampler. Trials train for max_length."""

    name: Literal["tpe"]


class GpSearcher(_Sampled):
    """Gaussian-process Bayesian optimisation, by Optuna's sampler (needs torch and scipy where the searcher runs)."""

    name: Literal["gp"]
    max_trials: int = Field(ge=1, le=1_000)


class CmaEsSearcher(_Sampled):
    """CMA-ES (Hansen 2016), by Optuna's sampler (needs the package cmaes where the searcher runs). For numbers; categorical
    hyperparameters are drawn at random."""

    name: Literal["cmaes"]


class Objective(Model):
    """Another metric that the search compares."""

    metric: str = Field(min_length=1)
    """Name of the validation metric."""
    smaller_is_better: bool = True
    """False: the larger the metric, the better."""


class Nsga2Searcher(_Sampled):
    """NSGA-II (Deb et al. 2002), by Optuna's sampler: several metrics at once. The result is a Pareto front."""

    name: Literal["nsga2"]
    objectives: list[Objective] = Field(min_length=1, max_length=5)
    """Metrics compared in addition to `metric`."""
    population_size: int = Field(default=50, ge=2, le=1000)
    """Trials of one generation; the next generation is made from the best of them."""

    @property
    def goals(self) -> tuple[tuple[str, bool], ...]:
        others = ((goal.metric, goal.smaller_is_better) for goal in self.objectives)
        return ((self.metric, self.smaller_is_better), *others)


class CustomSearcher(ManyTrials):
    """Your own Python class, run by `tenuto search run` as a process of its own: see docs/search.md. `max_trials` limits how
    many trials it may ask for. A trial that reached its target waits without slots until the class decides; at max_length it
    is complete."""

    MAX_TRIALS_CHANGES: ClassVar[bool] = True
    DERIVES: ClassVar[bool] = True
    DECIDED_OUTSIDE: ClassVar[bool] = True

    name: Literal["custom"]
    max_trials: int = Field(ge=1, le=MODEL_TRIALS_MAX)
    settings: dict[str, Any] = {}
    """Settings for your class, which reads them as `self.search.settings`."""


class PluginSearcher(ManyTrials):
    """A method of another package, which `tenuto plugin ls` lists. `settings` may be left out where the package is installed in
    the cluster; the record always has them."""

    DERIVES: ClassVar[bool] = True

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", json_schema_extra=lambda schema: _other_than_own(schema))
    """Name of the method, as its package declares it."""
    settings: dict[str, Any]
    """Settings of the method, which the package explains. What is left out is written down at submission."""


OwnSearcher = Annotated[
    SingleSearcher
    | RandomSearcher
    | SobolSearcher
    | GridSearcher
    | ShaSearcher
    | HyperbandSearcher
    | AshaSearcher
    | AdaptiveAshaSearcher
    | BohbSearcher
    | PbtSearcher
    | TpeSearcher
    | GpSearcher
    | CmaEsSearcher
    | Nsga2Searcher
    | CustomSearcher,
    Field(discriminator="name"),
]

OWN: Mapping[str, type[SearcherBase]] = {
    get_args(kind.model_fields["name"].annotation)[0]: kind for kind in get_args(get_args(OwnSearcher)[0])
}
"""Methods whose settings are in this module, by name."""
OWN_NAMES = frozenset(OWN)
MAX_TRIALS_CHANGES = frozenset(name for name, kind in OWN.items() if kind.MAX_TRIALS_CHANGES)
"""Methods whose max_trials can be changed while they run."""


def _other_than_own(schema: dict[str, Any]) -> None:
    schema["not"] = {"enum": sorted(OWN_NAMES)}


class _ByName:
    """Tells a method of another package from Tenuto's own: by its name, and by the `settings` without which a name that is not
    known is a wrong one. A class, because what pydantic prints of it is part of the shape of snapshots, and a function is printed
    with its address."""

    __name__ = "by_name"

    def __call__(self, value: Any) -> str:
        if not isinstance(value, Mapping):
            return "plugin" if isinstance(value, PluginSearcher) else "own"
        name = value.get("name")
        return "plugin" if isinstance(name, str) and name not in OWN_NAMES and "settings" in value else "own"

    def __repr__(self) -> str:
        return "by name"


class _OneList:
    """Puts all methods into one list of the JSON Schema, as editors and generators of clients expect."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        own, plugin = handler(core_schema)["oneOf"]
        return {**own, "oneOf": [*own["oneOf"], plugin]}

    def __repr__(self) -> str:
        return "in one list"


Searcher = Annotated[
    Annotated[OwnSearcher, Tag("own")] | Annotated[PluginSearcher, Tag("plugin")],
    Discriminator(_ByName()),
    _OneList(),
]
