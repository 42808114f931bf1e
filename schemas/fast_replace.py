"""Changed copies of frozen dataclasses, faster than `dataclasses.replace`; used where every report is folded or decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["replaced"]

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import replace as replaced  # so that names and types of the fields are checked
else:

    def replaced(item: T, /, **changes: Any) -> T:
        """Copy with changed fields, ten times faster than `dataclasses.replace`, whose frozen constructor sets each field by a
        call of its own. Only for classes without slots, `__post_init__` and cached properties."""
        copy = object.__new__(type(item))
        copy.__dict__.update(item.__dict__, **changes)
        return copy
