"""Changed copies of frozen records, cheaply: this is most of what folding an event does."""

from __future__ import annotations

from typing import Any, TypeVar

R = TypeVar("R")
_new = object.__new__
_set = object.__setattr__


def copied(record: R, changes: dict[str, Any]) -> R:
    """Same as `dataclasses.replace` for a frozen dataclass without slots, at a tenth of its cost: `__init__` is not called."""
    copy = _new(type(record))
    _set(copy, "__dict__", record.__dict__ | changes)
    return copy
