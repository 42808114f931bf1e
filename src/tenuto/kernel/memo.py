"""Memo: results computed from a frozen value, kept beside it so that they need not be computed again."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """One result of each type, kept with a frozen value and its changed copies. It is not part of the value: it is neither
    compared nor stored, a copy begins empty, and without it every result is the same. A changed copy shares the memo, so the code
    that keeps a result must check that it still holds for the value at hand.

    Pure rooms have no module state. Results that they must compute only once are kept here, and are freed together with the
    value.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[type[Any], Any] = {}

    def get(self, kind: type[T]) -> T | None:
        """The kept result of this type; None if there is none."""
        return self._kept.get(kind)

    def keep(self, found: T) -> T:
        """Keeps a result in place of the one of its type, and returns it."""
        self._kept[type(found)] = found
        return found

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return (Memo, ())
