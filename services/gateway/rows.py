"""Rows of a table that become models one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from tenuto.schemas.base import Model

M = TypeVar("M", bound=Model)


class Rows(Generic[M]):
    """Many rows of a table, each made a model only when it is looked at: 50,000 at once would hold up everybody for seconds."""

    def __init__(self, rows: list[dict[str, Any]], make: Callable[[dict[str, Any]], M]) -> None:
        self._rows, self._make = rows, make

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[M]:
        return (self._make(dict(row)) for row in self._rows)

    def encoded(self, first: int, count: int) -> bytes:
        """Some of them as elements of a JSON array."""
        return b",".join(self._make(dict(row)).to_json() for row in self._rows[first : first + count])
