"""The order in which differences are named: the one that most likely explains other results comes first.

The order follows what a difference does to the numbers. Other data and other settings change what is learned. Another seed that
a user chose, another number format or another code changes every step. A seed that was drawn because none was chosen differs
between any two experiments, so it says less about these two than a user's change. Versions, thread counts and machines
change the order of additions: the last digits at first, more as training goes on. Another name alone changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal[
    "data",
    "hyperparameter",
    "setting",
    "seed",
    "dtype",
    "code",
    "drawn_seed",
    "package",
    "threads",
    "hardware",
    "driver",
    "variable",
    "unused_package",
    "cosmetic",
]
Effect = Literal["likely", "possible", "unlikely", "none"]
ORDER: tuple[Kind, ...] = get_args(Kind)
EFFECTS: dict[Kind, Effect] = {
    "data": "likely",
    "hyperparameter": "likely",
    "setting": "likely",
    "seed": "likely",
    "dtype": "likely",
    "code": "likely",
    "drawn_seed": "likely",
    "package": "possible",
    "threads": "possible",
    "hardware": "possible",
    "driver": "possible",
    "variable": "unlikely",
    "unused_package": "unlikely",
    "cosmetic": "none",
}
NUMERIC_PACKAGES = (
    "torch", "tensorflow", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "lightning", "transformers", "torchvision",
    "torchaudio", "torchdata", "accelerate", "xgboost", "lightgbm", "pandas",
)  # fmt: skip
"""Packages that compute, named before those that log and plot."""


@dataclass(frozen=True)
class ConfigDifference:
    kind: Kind
    name: str
    """The differing item: a path of the configuration, a file, a package."""
    a: Any
    b: Any
    """The values, None where there is none."""
    overridden: bool = False
    """Set on the command line in one of the two."""
    consequence: bool = False
    """True if it follows from another difference, such as a thread count from the number of cores."""
    note: str = ""
    detail: str = ""
    """More of it, such as changed lines."""

    @property
    def effect(self) -> Effect:
        return EFFECTS[self.kind]


def by_likely_effect(differences: Iterable[ConfigDifference]) -> list[ConfigDifference]:
    return sorted(differences, key=_rank)


def _rank(item: ConfigDifference) -> tuple[int, bool, bool, int, str]:
    order = ORDER.index(item.kind)
    if item.consequence:  # right after the kind that it follows from
        order = max(order, ORDER.index("hardware"))
    return order, item.consequence, not item.overridden, _within(item), item.name


def _within(item: ConfigDifference) -> int:
    """Rank of the difference among those of its kind."""
    if item.kind in ("package", "unused_package"):
        if item.name == "python":
            return len(NUMERIC_PACKAGES)
        return NUMERIC_PACKAGES.index(item.name) if item.name in NUMERIC_PACKAGES else len(NUMERIC_PACKAGES) + 1
    if item.kind == "data":
        return 0 if item.a is not None and item.b is not None else 1
    if item.kind == "dtype":
        return 0 if "dtype" in item.name or "precision" in item.name else 1
    if item.kind == "code":
        return 0 if item.name.endswith(".py") else 1
    return 0
