"""Values of a hyperparameter's range, and the mapping of a uniform random number to one of them.

Results are the same on every platform: powers are computed in decimal arithmetic, because the C library's `pow` differs between
platforms in the last bit. They are a contract, since the values drawn are part of the record.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from sys import float_info
from typing import Any

from tenuto.schemas.config.hyperparameters import DoubleHyperparameter, IntHyperparameter, LogHyperparameter

BITS = 128
"""Number of bits of the uniform random number that `value_at` takes."""
# 40 digits: far beyond the 17 of a double, so that the rounding to a double is the same everywhere. No traps: an overflow
# becomes infinite and is cut to the largest double.
_DECIMAL = Context(prec=40, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[])
_LARGEST = Decimal(float_info.max)
_QUICK = Context(prec=22, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[])
_QUICK_EXPONENT_MAX = 1_000.0
_QUICK_SLACK = Decimal("1e-20")
"""Relative error allowed in the quick way. The logarithm has 40 digits, of which a factor of 1,000 leaves 37; the exponential
is rounded to 22 digits: both errors are far below this. Exponents in quarters may give exact results, which can lie between
two doubles; they are not computed the quick way."""
_SMALLEST, _QUICK_LARGEST = 1e-300, 1e300
"""Range in which a double has its full precision."""


def value_at(leaf: Any, bits: int) -> Any:
    """Value of the range for `bits`, which is uniform in [0, 2**BITS). `leaf` is a hyperparameter of any type, told apart by
    its type's name: this is most of the cost of a new trial, and an isinstance check of a model is slow."""
    kind = leaf.type
    if kind == "const":
        return leaf.val
    if kind == "categorical":
        return leaf.vals[below(len(leaf.vals), bits)]
    if kind == "int":
        if leaf.step is not None:
            return leaf.minval + leaf.step * below(steps(leaf), bits)
        return leaf.minval + below(leaf.maxval - leaf.minval + 1, bits)
    if leaf.step is not None:
        inside = stepped(leaf, below(steps(leaf), bits))
    else:
        # As many bits as a double has, so that the fraction is exact and below 1.
        fraction = (bits >> (BITS - 53)) / (1 << 53)
        # The sum is rounded, which could carry it beyond the end.
        inside = min(leaf.maxval, leaf.minval + fraction * (leaf.maxval - leaf.minval))
    return power(leaf.base, inside) if kind == "log" else inside


def steps(leaf: IntHyperparameter | DoubleHyperparameter | LogHyperparameter) -> int:
    """Number of values of a quantised range."""
    if isinstance(leaf, IntHyperparameter):
        return (leaf.maxval - leaf.minval) // (leaf.step or 1) + 1
    assert leaf.step is not None
    width = Decimal(str(leaf.maxval)) - Decimal(str(leaf.minval))
    count = _DECIMAL.divide_int(width, Decimal(str(leaf.step)))
    # More than forty digits are no number there.
    return (int(count) if count.is_finite() else int(Fraction(width) // Fraction(Decimal(str(leaf.step))))) + 1


def stepped(leaf: DoubleHyperparameter | LogHyperparameter, index: int) -> float:
    """The index-th value of a quantised range, as a person would write it: 0.1 + 2 * 0.1 is 0.3."""
    return float(Decimal(str(leaf.minval)) + index * Decimal(str(leaf.step)))


def power(base: float, exponent: float) -> float:
    """base ** exponent, the same double on every platform; never infinite.

    Twenty digits tell which double is nearest to the result, but for one in a thousand cases; these are computed with forty.
    (Ziv, "Fast Evaluation of Elementary Mathematical Functions with Correctly Rounded Last Bit", ACM TOMS 17(3), 1991.)
    """
    if base > 0 and abs(exponent) <= _QUICK_EXPONENT_MAX and not (exponent * 4).is_integer():
        near = _QUICK.exp(_DECIMAL.multiply(Decimal(exponent), _log(base)))
        slack = _QUICK.multiply(near, _QUICK_SLACK)
        low = float(_QUICK.subtract(near, slack))
        if low == float(_QUICK.add(near, slack)) and _SMALLEST < low < _QUICK_LARGEST:
            return low
    return float(min(_LARGEST, _DECIMAL.power(Decimal(base), Decimal(exponent))))


@lru_cache(maxsize=256)
def _log(base: float) -> Decimal:
    return _DECIMAL.ln(Decimal(base))


def exponent_of(base: float, value: float) -> float:
    """x with base ** x = value, the same double on every platform. `value` must be above 0."""
    return float(_DECIMAL.divide(_DECIMAL.ln(Decimal(value)), _DECIMAL.ln(Decimal(base))))


def below(count: int, bits: int) -> int:
    """Uniform over 0..count-1: the bias of the multiplication is below count / 2**BITS."""
    return (bits * count) >> BITS
