"""TPE, GP, CMA-ES and NSGA-II: the next configuration from the results in the state, by Optuna's samplers and the cmaes package.

Nothing is kept between two proposals: the sampler is rebuilt from the state, in the order of trial numbers, and seeded by the
experiment's seed and the trial's number. So a searcher that was killed proposes what it would have proposed, and the simulator
proposes what the service does (with the same versions of the libraries).

CMA-ES is taken from `cmaes`, the package behind Optuna's sampler, because Optuna keeps its state in the study, which we
rebuild: each generation is the next `population size` results in the order of trial numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from tenuto.schemas.config import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    IntHyperparameter,
    LogHyperparameter,
    Nsga2Searcher,
)
from tenuto.schemas.config.ranges import BITS, exponent_of, power, stepped, steps, value_at
from tenuto.schemas.config.space import allowed, same
from tenuto.services.searcher.adapters.results import Results, results_of
from tenuto.services.searcher.commands import ProposeTrial
from tenuto.services.searcher.methods import method_for
from tenuto.services.searcher.methods.sampling import Leaf, Path, draw_bits, drawn, fill, in_use, leaves, read, sample
from tenuto.services.searcher.state import Experiment, SearcherState

if TYPE_CHECKING:
    import optuna

ASKS_MAX = 50
"""Points asked of a sampler until one keeps the constraints; then one is drawn at random that does."""
_SEED_BITS = 32


class SamplerMissing(Exception):
    """A package that the method needs is not installed where the searcher runs."""


def wanting(state: SearcherState) -> list[Experiment]:
    """Experiments that have a free place and wait for a proposal, by id."""
    return [
        experiment
        for _, experiment in sorted(state.experiments.items())
        if experiment.rule_version
        and experiment.settings.SAMPLED
        and method_for(experiment.settings, experiment.space).asks_outside
        and experiment.wants_trials
        and experiment.active < experiment.concurrent_trials_max
    ]


def propose(experiment: Experiment) -> ProposeTrial:
    """The next trial. Raises SamplerMissing, also while the model does not propose yet: better before anything has trained; and
    Undrawable where constraints leave nothing."""
    number = experiment.requested + 1
    seed, space, settings = experiment.seed, experiment.space, experiment.settings
    _named(_PACKAGES[settings.name], settings.name)
    results = results_of(experiment)
    startup = getattr(settings, "startup_trials", 0)
    if len(results.told) < startup:
        name, ask = "random", None
    else:
        try:
            sampler_seed = draw_bits(seed, number, "sampler") >> (128 - _SEED_BITS)
            name, ask = _SAMPLERS[settings.name](experiment, results, sampler_seed)
        except ImportError as error:
            raise SamplerMissing(
                f"The {settings.name} searcher cannot be used where the searcher runs: {error}. Install the missing package"
                " there, or choose another searcher."
            ) from error

    def attempt(index: int) -> dict[str, Any]:
        # Attempts beyond the sampler's are drawn at random: it may never leave a forbidden corner.
        return sample(space, seed, number, index) if ask is None or index >= ASKS_MAX else ask(index)

    hyperparameters = drawn(settings, space, seed, number, attempt)
    return ProposeTrial(experiment.id, number, hyperparameters, name, len(results.told))


Ask = Callable[[int], dict[str, Any]]


def _optuna(experiment: Experiment, results: Results, sampler: optuna.samplers.BaseSampler, generation: int = 0) -> Ask:
    import optuna

    known = dict(leaves(experiment.space))
    distributions = {
        ".".join(path): _distribution(leaf) for path, leaf in known.items() if not isinstance(leaf, ConstHyperparameter)
    }
    goals = len(results.told[0][2]) if results.told else 1
    study = optuna.create_study(directions=["minimize"] * goals, sampler=sampler)
    for index, (_, hyperparameters, values) in enumerate(results.told):
        marks = {f"{type(sampler).__name__}:generation": index // generation} if generation else {}
        study.add_trial(_trial(known, distributions, hyperparameters, values, marks))
    for hyperparameters in results.open:
        study.add_trial(_trial(known, distributions, hyperparameters, None, {}))

    def ask(_: int) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = study.ask()
            return _suggested(experiment.space, known, trial)

    return ask


def _trial(
    known: dict[Path, Leaf], distributions: dict[str, Any], hyperparameters: dict[str, Any], values: Any, marks: dict[str, Any]
) -> optuna.trial.FrozenTrial:
    import optuna

    parameters = {}
    for path, leaf in known.items():
        name = ".".join(path)
        try:
            value = read(hyperparameters, path)
        except (KeyError, TypeError):
            continue
        if name in distributions:
            parameters[name] = _code(leaf, value)
    used = {name: distributions[name] for name in parameters}
    parameters = {name: value for name, value in parameters.items() if used[name]._contains(used[name].to_internal_repr(value))}
    state = optuna.trial.TrialState.COMPLETE if values is not None else optuna.trial.TrialState.RUNNING
    return optuna.trial.create_trial(
        state=state,
        values=None if values is None else list(values),
        params=parameters,
        distributions={name: used[name] for name in parameters},
        system_attrs=marks,
    )


def _suggested(space: Any, known: dict[Path, Leaf], trial: optuna.trial.Trial) -> dict[str, Any]:
    """Asks for what is in use only: who depends on others (`when`) comes after them."""
    values: dict[Path, Any] = {}
    used: dict[Path, bool] = {}

    def settle(path: Path) -> bool:
        if path not in used:
            used[path] = all(
                settle(other) and any(same(values[other], value) for value in allowed(condition))
                for name, condition in (known[path].when or {}).items()
                for other in [tuple(name.split("."))]
            )
            if used[path]:
                values[path] = _suggest(known[path], ".".join(path), trial)
        return used[path]

    for path in sorted(known):
        settle(path)
    return fill(space, values)


def _suggest(leaf: Leaf, name: str, trial: optuna.trial.Trial) -> Any:
    if isinstance(leaf, ConstHyperparameter):
        return leaf.val
    return _decode(leaf, trial._suggest(name, _distribution(leaf)))


def _distribution(leaf: Leaf) -> Any:
    """Categories are asked for by index, as they may be anything; log ranges by exponent, as ours may have any base."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(leaf, CategoricalHyperparameter):
        return CategoricalDistribution(list(range(len(leaf.vals))))
    if isinstance(leaf, IntHyperparameter):
        return IntDistribution(leaf.minval, leaf.minval + (leaf.step or 1) * (steps(leaf) - 1), step=leaf.step or 1)
    assert not isinstance(leaf, ConstHyperparameter)
    if leaf.step is not None:
        return IntDistribution(0, steps(leaf) - 1)
    return FloatDistribution(leaf.minval, leaf.maxval)


def _decode(leaf: Leaf, code: Any) -> Any:
    if isinstance(leaf, CategoricalHyperparameter):
        return leaf.vals[code]
    if isinstance(leaf, (ConstHyperparameter, IntHyperparameter)):
        return code
    at = stepped(leaf, code) if leaf.step is not None else code
    return power(leaf.base, at) if isinstance(leaf, LogHyperparameter) else at


def _code(leaf: Leaf, value: Any) -> Any:
    if isinstance(leaf, CategoricalHyperparameter):
        return next((index for index, item in enumerate(leaf.vals) if same(item, value)), 0)
    if isinstance(leaf, (ConstHyperparameter, IntHyperparameter)):
        return value
    at = exponent_of(leaf.base, value) if isinstance(leaf, LogHyperparameter) else float(value)
    if leaf.step is not None:
        return min(steps(leaf) - 1, max(0, round((at - leaf.minval) / leaf.step)))
    return min(leaf.maxval, max(leaf.minval, at))


def _named(package: str, what: str) -> str:
    try:
        return f"{what} ({package} {version(package)})"
    except PackageNotFoundError:
        raise SamplerMissing(
            f"The {what} searcher needs the package {package} where the searcher runs; install it there (pip install"
            " 'tenuto[search]'), or choose another searcher."
        ) from None


def _quiet_optuna() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna


def _tpe(experiment: Experiment, results: Results, seed: int) -> tuple[str, Ask]:
    name = _named("optuna", "tpe")
    optuna = _quiet_optuna()
    conditional = any(leaf.when for _, leaf in leaves(experiment.space))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=0, multivariate=True, group=conditional, constant_liar=True, seed=seed
        )
    return name, _optuna(experiment, results, sampler)


def _gp(experiment: Experiment, results: Results, seed: int) -> tuple[str, Ask]:
    name = _named("optuna", "gp")
    optuna = _quiet_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.GPSampler(n_startup_trials=0, seed=seed, deterministic_objective=False)
    return name, _optuna(experiment, results, sampler)


def _nsga2(experiment: Experiment, results: Results, seed: int) -> tuple[str, Ask]:
    assert isinstance(experiment.settings, Nsga2Searcher)
    name = _named("optuna", "nsga2")
    optuna = _quiet_optuna()
    size = experiment.settings.population_size
    return name, _optuna(experiment, results, optuna.samplers.NSGAIISampler(population_size=size, seed=seed), size)


def _cmaes(experiment: Experiment, results: Results, seed: int) -> tuple[str, Ask]:
    name = _named("cmaes", "cmaes")
    import numpy
    from cmaes import CMA  # type: ignore[import-untyped]

    known = dict(leaves(experiment.space))
    axes = [
        (path, leaf)
        for path, leaf in sorted(known.items())
        if not isinstance(leaf, (ConstHyperparameter, CategoricalHyperparameter)) and leaf.minval < leaf.maxval
    ]
    number = experiment.requested + 1
    if not axes:
        return name, lambda index: sample(experiment.space, experiment.seed, number, index)
    dimension = max(2, len(axes))  # the package knows no single axis: a second one is there and means nothing
    bounds = numpy.array([[0.0, 1.0]] * dimension)
    cma = CMA(mean=numpy.full(dimension, 0.5), sigma=1 / 6, bounds=bounds, seed=seed)
    size = cma.population_size
    for first in range(0, len(results.told) - size + 1, size):
        cma.tell(
            [
                (_place(axes, hyperparameters, dimension), values[0])
                for _, hyperparameters, values in results.told[first : first + size]
            ]
        )
    # What is drawn for this trial depends on its number, not on how often the sampler was asked before.
    cma.reseed_rng(seed)

    def ask(index: int) -> dict[str, Any]:
        place = cma.ask()
        values = {
            path: value_at(leaf, draw_bits(experiment.seed, number, f"cmaes/{index}", path)) for path, leaf in known.items()
        }
        for (path, leaf), at in zip(axes, place, strict=False):
            values[path] = value_at(leaf, min((1 << BITS) - 1, max(0, int(float(at) * (1 << 53)) << (BITS - 53))))
        return fill(experiment.space, in_use(experiment.space, values))

    return name, ask


def _place(axes: list[tuple[Path, Any]], hyperparameters: dict[str, Any], dimension: int) -> Any:
    import numpy

    place = numpy.full(dimension, 0.5)
    for index, (path, leaf) in enumerate(axes):
        try:
            value = read(hyperparameters, path)
        except (KeyError, TypeError):
            continue
        if isinstance(leaf, IntHyperparameter):
            place[index] = (value - leaf.minval + 0.5) / (leaf.maxval - leaf.minval + 1)
        else:
            at = exponent_of(leaf.base, value) if isinstance(leaf, LogHyperparameter) else value
            place[index] = min(1.0, max(0.0, (at - leaf.minval) / (leaf.maxval - leaf.minval)))
    return place


_PACKAGES = {"tpe": "optuna", "gp": "optuna", "nsga2": "optuna", "cmaes": "cmaes"}
_SAMPLERS: dict[str, Callable[[Experiment, Results, int], tuple[str, Ask]]] = {
    "tpe": _tpe,
    "gp": _gp,
    "nsga2": _nsga2,
    "cmaes": _cmaes,
}
