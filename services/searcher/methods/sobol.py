"""Quasi-random draws: a Sobol sequence, each point trained to the full length.

I. M. Sobol, 1967; direction numbers of Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections",
SIAM J. Sci. Comput. 30, 2008 (their table new-joe-kuo-6). Points are taken in Gray-code order (Antonov and Saleev, 1979) and
computed from their number alone, so that no order of arrival matters. Each axis is moved by a random digital shift (exclusive
or with 32 bits drawn from the seed and the hyperparameter's path): the spread stays that of the sequence, and another seed is
another search.

Constraints: the n-th trial takes the n-th point that keeps them, so that the spread inside what is allowed stays that of the
sequence. Behind WALK_MAX points a trial is drawn at random, as in the random method.

Axes are the paths' names in sorted order, whatever the order in the configuration. Beyond DIMENSIONS_MAX hyperparameters the
rest is drawn independently, as by the random method.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tenuto.schemas.config import SobolSearcher
from tenuto.schemas.config.ranges import BITS, value_at
from tenuto.services.searcher.methods.base import Rules
from tenuto.services.searcher.methods.sampling import Plan, draw_bits, drawn, fill, in_use, is_random, keeps, plan_of, sample

_BITS = 32
"""First bits of a draw that the sequence gives; the rest of its BITS comes from the hash."""
WALK_MAX = 1 << 14
"""Points looked at for those that keep the constraints: about a second after a restart, and none later, as they are kept."""


def sobol_point(number: int, dimension: int) -> int:
    """Coordinate of the number-th point (from 0) along an axis (from 0), in units of 2**-32."""
    gray, found = number ^ (number >> 1), 0
    for bit, direction in enumerate(_directions(dimension)):
        if gray >> bit & 1:
            found ^= direction
    return found


@lru_cache(maxsize=1024)
def _directions(dimension: int) -> tuple[int, ...]:
    """v_1, v_2, ... of an axis, by the recurrence of its primitive polynomial."""
    if dimension == 0:
        return tuple(1 << (_BITS - 1 - bit) for bit in range(_BITS))
    polynomial, start = TABLE[dimension - 1]
    degree = polynomial.bit_length() - 1
    numbers = list(start)
    for index in range(degree, _BITS):
        number = numbers[index - degree] ^ (numbers[index - degree] << degree)
        for k in range(1, degree):
            if polynomial >> (degree - k) & 1:
                number ^= numbers[index - k] << k
        numbers.append(number)
    return tuple(number << (_BITS - 1 - bit) for bit, number in enumerate(numbers))


class Sobol(Rules[SobolSearcher]):
    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]:
        return drawn(self.settings, self.space, seed, trial_number, lambda attempt: self._draw(seed, trial_number, attempt))

    def _draw(self, seed: int, trial_number: int, attempt: int) -> dict[str, Any]:
        if trial_number <= len(self.settings.starting_points):
            return (
                point(self.space, seed, trial_number, trial_number - 1)
                if attempt == 0
                else self._anew(seed, trial_number, attempt)
            )
        constraints = tuple(self.settings.constraints)
        index = trial_number - 1 if not constraints else _walk(plan_of(self.space), seed, constraints).feasible(trial_number - 1)
        return self._anew(seed, trial_number, attempt) if index is None else point(self.space, seed, index + 1, index)

    def _anew(self, seed: int, trial_number: int, attempt: int) -> dict[str, Any]:
        return sample(self.space, seed, trial_number, attempt)


class _Walk:
    """Points of a sequence that keep the constraints, as far as it was walked. Determined by its arguments alone, so it may be
    kept or forgotten at any time."""

    def __init__(self, plan: Plan, seed: int, constraints: tuple[str, ...]) -> None:
        self._plan, self._seed, self._constraints = plan, seed, constraints
        self._found: list[int] = []
        self._next = 0

    def feasible(self, count: int) -> int | None:
        """Number of the point (from 0) that `count` others before it keep the constraints; None: it is not among the first
        WALK_MAX."""
        while len(self._found) <= count and self._next < WALK_MAX:
            if keeps(self._constraints, point(self._plan.space, self._seed, self._next + 1, self._next)):
                self._found.append(self._next)
            self._next += 1
        return self._found[count] if count < len(self._found) else None


@lru_cache(maxsize=64)
def _walk(plan: Plan, seed: int, constraints: tuple[str, ...]) -> _Walk:
    return _Walk(plan, seed, constraints)


def point(space: Mapping[str, Any], seed: int, key: int, number: int) -> dict[str, Any]:
    """The number-th point of the sequence (from 0). `key` decides the digits that the sequence does not."""
    known = dict(plan_of(space).leaves)
    axes = sorted(path for path, leaf in known.items() if is_random(leaf))
    values = {path: value_at(leaf, 0) for path, leaf in known.items() if not is_random(leaf)}
    for dimension, path in enumerate(axes):
        bits = draw_bits(seed, key, "sobol", path)
        if dimension < DIMENSIONS_MAX:
            shift = draw_bits(seed, 0, "sobol/shift", path) >> (BITS - _BITS)
            bits = (sobol_point(number % (1 << _BITS), dimension) ^ shift) << (BITS - _BITS) | bits >> _BITS
        values[path] = value_at(known[path], bits)
    return fill(space, in_use(space, values))


TABLE: tuple[tuple[int, tuple[int, ...]], ...] = (
    (3, (1,)),
    (7, (1, 3)),
    (11, (1, 3, 1)),
    (13, (1, 1, 1)),
    (19, (1, 1, 3, 3)),
    (25, (1, 3, 5, 13)),
    (37, (1, 1, 5, 5, 17)),
    (41, (1, 1, 5, 5, 5)),
    (47, (1, 1, 7, 11, 19)),
    (55, (1, 1, 5, 1, 1)),
    (59, (1, 1, 1, 3, 11)),
    (61, (1, 3, 5, 5, 31)),
    (67, (1, 3, 3, 9, 7, 49)),
    (91, (1, 1, 1, 15, 21, 21)),
    (97, (1, 3, 1, 13, 27, 49)),
    (103, (1, 1, 1, 15, 7, 5)),
    (109, (1, 3, 1, 15, 13, 25)),
    (115, (1, 1, 5, 5, 19, 61)),
    (131, (1, 3, 7, 11, 23, 15, 103)),
    (137, (1, 3, 7, 13, 13, 15, 69)),
    (143, (1, 1, 3, 13, 7, 35, 63)),
    (145, (1, 3, 5, 9, 1, 25, 53)),
    (157, (1, 3, 1, 13, 9, 35, 107)),
    (167, (1, 3, 1, 5, 27, 61, 31)),
    (171, (1, 1, 5, 11, 19, 41, 61)),
    (185, (1, 3, 5, 3, 3, 13, 69)),
    (191, (1, 1, 7, 13, 1, 19, 1)),
    (193, (1, 3, 7, 5, 13, 19, 59)),
    (203, (1, 1, 3, 9, 25, 29, 41)),
    (211, (1, 3, 5, 13, 23, 1, 55)),
    (213, (1, 3, 7, 3, 13, 59, 17)),
    (229, (1, 3, 1, 3, 5, 53, 69)),
    (239, (1, 1, 5, 5, 23, 33, 13)),
    (241, (1, 1, 7, 7, 1, 61, 123)),
    (247, (1, 1, 7, 9, 13, 61, 49)),
    (253, (1, 3, 3, 5, 3, 55, 33)),
    (285, (1, 3, 1, 15, 31, 13, 49, 245)),
    (299, (1, 3, 5, 15, 31, 59, 63, 97)),
    (301, (1, 3, 1, 11, 11, 11, 77, 249)),
    (333, (1, 3, 1, 11, 27, 43, 71, 9)),
    (351, (1, 1, 7, 15, 21, 11, 81, 45)),
    (355, (1, 3, 7, 3, 25, 31, 65, 79)),
    (357, (1, 3, 1, 1, 19, 11, 3, 205)),
    (361, (1, 1, 5, 9, 19, 21, 29, 157)),
    (369, (1, 3, 7, 11, 1, 33, 89, 185)),
    (391, (1, 3, 3, 3, 15, 9, 79, 71)),
    (397, (1, 3, 7, 11, 15, 39, 119, 27)),
    (425, (1, 1, 3, 1, 11, 31, 97, 225)),
    (451, (1, 1, 1, 3, 23, 43, 57, 177)),
    (463, (1, 3, 7, 7, 17, 17, 37, 71)),
    (487, (1, 3, 1, 5, 27, 63, 123, 213)),
    (501, (1, 1, 3, 5, 11, 43, 53, 133)),
    (529, (1, 3, 5, 5, 29, 17, 47, 173, 479)),
    (539, (1, 3, 3, 11, 3, 1, 109, 9, 69)),
    (545, (1, 1, 1, 5, 17, 39, 23, 5, 343)),
    (557, (1, 3, 1, 5, 25, 15, 31, 103, 499)),
    (563, (1, 1, 1, 11, 11, 17, 63, 105, 183)),
    (601, (1, 1, 5, 11, 9, 29, 97, 231, 363)),
    (607, (1, 1, 5, 15, 19, 45, 41, 7, 383)),
    (617, (1, 3, 7, 7, 31, 19, 83, 137, 221)),
    (623, (1, 1, 1, 3, 23, 15, 111, 223, 83)),
    (631, (1, 1, 5, 13, 31, 15, 55, 25, 161)),
    (637, (1, 1, 3, 13, 25, 47, 39, 87, 257)),
)
"""Parameters of each axis from the second on: the primitive polynomial over GF(2) as bits, and m_1, m_2, ... of the table."""
DIMENSIONS_MAX = len(TABLE) + 1
