"""What was found from a frozen value, kept beside it so that it need not be found again."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """One thing of each type, kept with a frozen value and its changed copies. It is no part of the value: it is not compared and
    not stored, a copy begins empty, and without it every result is the same. Who keeps something has to see for itself that it
    still holds for the value at hand, as a changed copy shares it.

    A pure room has no state of a module. What it must find once only is kept so, and goes with the value that it was found from.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[type[Any], Any] = {}

    def get(self, kind: type[T]) -> T | None:
        """What was kept of this type, if anything was."""
        return self._kept.get(kind)

    def keep(self, found: T) -> T:
        """Keeps it in place of what was kept of its type, and returns it."""
        self._kept[type(found)] = found
        return found

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return (Memo, ())
