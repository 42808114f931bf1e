"""The search space. A bare value is a constant; a mapping without `type` is a nested group."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import TypeAliasType

from tenuto.schemas.base import JsonScalar, Model

DEPTH_MAX = 16
"""Most levels of nesting in a search space: deeper than any real model's configuration, and small enough for any recursion."""


class _Leaf(Model):
    when: dict[str, Any] | None = Field(default=None, min_length=1)
    """Condition for using the hyperparameter: path of another one (`optimizer`, `net.kind`) -> its value or a list of values.
    If the condition does not hold, the hyperparameter is left out of the trial's."""


class ConstHyperparameter(_Leaf):
    """One value. A bare `name: value` is short for it."""

    type: Literal["const"] = "const"
    val: JsonScalar | list[Any]
    """The value."""


class _Range(_Leaf):
    count: int | None = Field(default=None, ge=1)
    """Grid points along this axis; needed by the grid searcher only."""


class _Real(_Range):
    step: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Distance of the values: only minval, minval + step, ... are drawn, each with equal probability (of a log range: these
    exponents). None: any value in the range."""


class IntHyperparameter(_Range):
    """Uniform over the whole numbers minval..maxval, both included."""

    type: Literal["int"]
    minval: int
    """The smallest value."""
    maxval: int
    """The largest value."""
    step: int | None = Field(default=None, ge=1)
    """Distance of the values: only minval, minval + step, ... are drawn, each with equal probability. None: every whole number
    in the range."""

    @model_validator(mode="after")
    def _order(self) -> IntHyperparameter:
        if self.minval > self.maxval:
            raise ValueError(f"minval ({self.minval}) must not be above maxval ({self.maxval})")
        return self


class DoubleHyperparameter(_Real):
    """Uniform over [minval, maxval]."""

    type: Literal["double"]
    minval: float
    """The smallest value."""
    maxval: float
    """The largest value."""

    @model_validator(mode="after")
    def _order(self) -> DoubleHyperparameter:
        if not self.minval <= self.maxval or self.maxval - self.minval == float("inf"):
            raise ValueError(f"minval ({self.minval}) must not be above maxval ({self.maxval}), and both must be finite")
        return self


class LogHyperparameter(_Real):
    """base ** x with x uniform over [minval, maxval]: minval and maxval are exponents."""

    type: Literal["log"]
    base: float = Field(default=10.0, gt=0)
    """Base of the power."""
    minval: float
    """The smallest exponent."""
    maxval: float
    """The largest exponent."""

    @model_validator(mode="after")
    def _order(self) -> LogHyperparameter:
        if not self.minval <= self.maxval or self.maxval - self.minval == float("inf"):
            raise ValueError(
                f"minval ({self.minval}) must not be above maxval ({self.maxval}), and both must be finite; they are exponents"
            )
        if self.base == 1:
            raise ValueError("base must not be 1: every value would be 1")
        return self


class CategoricalHyperparameter(_Leaf):
    """One of several values, each with equal probability."""

    type: Literal["categorical"]
    vals: list[Any] = Field(min_length=1)
    """The values: text, numbers, true, false, null, lists or mappings."""


def _kind(value: Any) -> str:
    if isinstance(value, Model):
        return str(getattr(value, "type", "const"))
    if isinstance(value, dict):
        kind = value.get("type")
        return str(kind) if isinstance(kind, str) else "nested"
    return "const"


def _constant(value: Any) -> Any:
    """A bare scalar or list stands for a constant."""
    return value if isinstance(value, (dict, Model)) else {"type": "const", "val": value}


Hyperparameter = TypeAliasType(
    "Hyperparameter",
    Annotated[
        Annotated[ConstHyperparameter, Tag("const")]
        | Annotated[IntHyperparameter, Tag("int")]
        | Annotated[DoubleHyperparameter, Tag("double")]
        | Annotated[LogHyperparameter, Tag("log")]
        | Annotated[CategoricalHyperparameter, Tag("categorical")]
        | Annotated["dict[str, Hyperparameter]", Tag("nested")],
        Discriminator(_kind),
    ],
)

Hyperparameters = dict[str, Hyperparameter]


def bare_constants(space: Any, depth: int = 0) -> Any:
    """Search space with its bare values written as constants, on every level, so that errors in them have a clear path."""
    if depth > DEPTH_MAX:
        raise ValueError(f"hyperparameters are nested deeper than {DEPTH_MAX} levels")
    if not isinstance(space, dict):
        return space
    return {
        name: (
            bare_constants(value, depth + 1)
            if isinstance(value, dict) and not isinstance(value.get("type"), str)
            else _constant(value)
        )
        for name, value in space.items()
    }
