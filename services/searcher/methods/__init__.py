"""The search methods. Each is a pure, stateless set of rules; what it has learned is in the `Experiment`.

A method is one or several ladders of lengths (brackets of rungs), a way to make the next trial's hyperparameters, and rules: what
happens to a trial that reached its rung, and which waiting trial takes a free place. Methods without early stopping have one
rung, the full length. What a method has to provide is in `base.py`.
"""

from __future__ import annotations

from typing import Any

from tenuto.schemas.config import Hyperparameters, Searcher
from tenuto.services.searcher.methods.adaptive_asha import AdaptiveAsha
from tenuto.services.searcher.methods.asha import Asha
from tenuto.services.searcher.methods.base import Method, Rules
from tenuto.services.searcher.methods.bohb import Bohb
from tenuto.services.searcher.methods.custom import Custom
from tenuto.services.searcher.methods.grid import Grid
from tenuto.services.searcher.methods.halving import Halving, Hyperband
from tenuto.services.searcher.methods.pbt import Pbt
from tenuto.services.searcher.methods.random import Random
from tenuto.services.searcher.methods.sampled import Sampled
from tenuto.services.searcher.methods.single import Single
from tenuto.services.searcher.methods.sobol import Sobol
from tenuto.services.searcher.methods.versions import RULE_VERSION, RULE_VERSIONS_KNOWN
from tenuto.services.searcher.state.space import kept

METHODS: dict[str, type[Rules[Any]]] = {
    "single": Single,
    "random": Random,
    "sobol": Sobol,
    "grid": Grid,
    "sha": Halving,
    "hyperband": Hyperband,
    "asha": Asha,
    "adaptive_asha": AdaptiveAsha,
    "bohb": Bohb,
    "pbt": Pbt,
    "tpe": Sampled,
    "gp": Sampled,
    "cmaes": Sampled,
    "nsga2": Sampled,
    "custom": Custom,
}


class UnknownRules(Exception):
    """The experiment was started by rules that this build does not have."""


def method_for(settings: Searcher, space: Hyperparameters, rule_version: int = RULE_VERSION) -> Method:
    """Raises UnknownRules: deciding by other rules would silently contradict the record."""
    if rule_version not in RULE_VERSIONS_KNOWN:
        raise UnknownRules(
            f"This experiment is searched by rules version {rule_version}, but this searcher knows versions"
            f" {', '.join(map(str, RULE_VERSIONS_KNOWN))} only; run the searcher of the release that started it, or a newer one."
        )
    return METHODS[settings.name](settings, kept(space), rule_version)


__all__ = ["METHODS", "RULE_VERSION", "RULE_VERSIONS_KNOWN", "Method", "UnknownRules", "method_for"]
