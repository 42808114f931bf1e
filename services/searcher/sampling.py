"""Draws from a search space. Counter-based: each number depends on its own key and on nothing drawn before.

The key is (experiment seed, trial number, purpose, path of the hyperparameter), hashed with BLAKE2b. So neither the order in
which trials are asked for nor the order of keys in the configuration can change a value, and equal seeds give equal searches
on every platform: powers are computed in decimal arithmetic, because the C library's `pow` differs between platforms in the
last bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from hashlib import blake2b
from sys import float_info
from typing import Any

from tenuto.schemas.config import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    DoubleHyperparameter,
    IntHyperparameter,
    LogHyperparameter,
)

Path = tuple[str, ...]
Leaf = ConstHyperparameter | IntHyperparameter | DoubleHyperparameter | LogHyperparameter | CategoricalHyperparameter

_DRAW_BITS = 128
_KEY = json.JSONEncoder(separators=(",", ":"))
_PERSON = b"tenuto.search.1"
# 40 digits: far beyond the 17 of a double, so that the rounding to a double is the same everywhere. No traps: an overflow
# becomes infinite and is cut to the largest double.
_DECIMAL = Context(prec=40, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[])
_LARGEST = Decimal(float_info.max)


def draw_bits(seed: int, trial_number: int, purpose: str, path: Path = ()) -> int:
    """A uniform number in [0, 2**128) that belongs to this key."""
    key = _KEY.encode([seed, trial_number, purpose, *path]).encode()
    return int.from_bytes(blake2b(key, digest_size=_DRAW_BITS // 8, person=_PERSON).digest(), "big")


def trial_seed(seed: int, trial_number: int) -> int:
    """The seed of a trial's training: a number in [0, 2**63)."""
    return draw_bits(seed, trial_number, "trial_seed") >> (_DRAW_BITS - 63)


def leaves(space: Mapping[str, Any], prefix: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """Every hyperparameter with its path, in the order of the configuration."""
    for name, value in space.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*prefix, name))
        else:
            yield (*prefix, name), value


def fill(space: Mapping[str, Any], values: Mapping[Path, Any], prefix: Path = ()) -> dict[str, Any]:
    """The space with each hyperparameter replaced by its value: the nesting and the order of keys stay."""
    return {
        name: fill(value, values, (*prefix, name)) if isinstance(value, Mapping) else values[(*prefix, name)]
        for name, value in space.items()
    }


def sample(space: Mapping[str, Any], seed: int, trial_number: int) -> dict[str, Any]:
    """One independent draw of every hyperparameter."""
    drawn = {
        path: draw(leaf, draw_bits(seed, trial_number, "hyperparameter", path) if _is_random(leaf) else 0)
        for path, leaf in leaves(space)
    }
    return fill(space, drawn)


def draw(leaf: Leaf, bits: int) -> Any:
    """The value that `bits`, uniform in [0, 2**128), stands for."""
    if isinstance(leaf, ConstHyperparameter):
        return leaf.val
    if isinstance(leaf, CategoricalHyperparameter):
        return leaf.vals[_below(len(leaf.vals), bits)]
    if isinstance(leaf, IntHyperparameter):
        return leaf.minval + _below(leaf.maxval - leaf.minval + 1, bits)
    fraction = (bits >> (_DRAW_BITS - 53)) / (1 << 53)
    inside = min(leaf.maxval, leaf.minval + fraction * (leaf.maxval - leaf.minval))
    return power(leaf.base, inside) if isinstance(leaf, LogHyperparameter) else inside


def power(base: float, exponent: float) -> float:
    """base ** exponent, the same double on every platform; never infinite."""
    return float(min(_LARGEST, _DECIMAL.power(Decimal(base), Decimal(exponent))))


def _is_random(leaf: Leaf) -> bool:
    return not isinstance(leaf, ConstHyperparameter)


def _below(count: int, bits: int) -> int:
    """Uniform over 0..count-1: the bias of the multiplication is below count / 2**128."""
    return (bits * count) >> _DRAW_BITS
