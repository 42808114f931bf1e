"""tpe, gp, cmaes, nsga2: configurations from Optuna's samplers, each trained to the full length.

The samplers are not ours and not pure: they draw from NumPy's generators, fit models with SciPy or PyTorch, and their numbers
may differ between versions and machines. So these rules do not run them. The searcher's shell sees in the state that a trial is
wanted, rebuilds the sampler's study from the results in the state (in the order of trial numbers, seeded by the experiment's
seed and the trial's number), asks for the next point, and hands it in as a command (`commands.ProposeTrial`). What is recorded
is the point itself. Replay therefore folds it as it was proposed, as it does with everything that answers a command, and takes
all other decisions again.

Papers: TPE: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011. CMA-ES: Hansen, "The CMA Evolution
Strategy: A Tutorial", 2016. NSGA-II: Deb et al., "A Fast and Elitist Multiobjective Genetic Algorithm", IEEE TEC 6(2), 2002.
GP: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, with log expected improvement (Ament et al.,
NeurIPS 2023).
"""

from __future__ import annotations

from typing import Any

from tenuto.services.searcher.methods.base import Proposal, Rules
from tenuto.services.searcher.state import Experiment, Remembers


class Sampled(Rules[Any]):
    @property
    def remembers(self) -> Remembers:
        return "all"

    @property
    def asks_outside(self) -> bool:
        return True

    def best_max(self, trials: int) -> int:
        return trials

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        # The user's own points need no model.
        number = experiment.requested + 1
        if number > len(self.settings.starting_points):
            return None
        hyperparameters = self.hyperparameters(experiment.seed, number)
        return None if hyperparameters is None else Proposal(hyperparameters)
