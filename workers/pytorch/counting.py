"""Numbers of records in batches: the weights of their results in averages.

The sampler knows them: a batch is made of the records at its indices, whatever `collate_fn` makes of these. Where a data set
makes whole batches, only their content can tell, and often it does not: the first tensor may be an image of the first record,
the weights of the classes, or the nodes of a graph. Then nothing is guessed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

PAIR = 2
"""Most values of one kind in a list that are taken for the fields of a batch (inputs and targets) and not for its records."""


class Counted(NamedTuple):
    """A batch, made by a loader worker."""

    batch: Any
    records: int | None
    """None: not known."""


class CountingCollate:
    """`collate_fn` that also counts. Runs in loader workers."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, items: Any) -> Counted:
        return Counted(self.collate(items), records_among(items))


def records_among(items: Iterable[Any]) -> int:
    """Records that a batch is made of. A data set gives None for one that cannot be read, and `collate_fn` leaves it out."""
    return sum(item is not None for item in items)


def records_at(indices: Any) -> int | None:
    """Records at a sampler's result. None: it is one index, of a whole batch or of a record."""
    if isinstance(indices, list) or getattr(indices, "ndim", 0) == 1:
        return len(indices)
    return None


def records_of(batch: Any) -> int | None:
    """Records in a batch, by its content: the first dimension, if all arrays in it have the same. None if that is not certain."""
    lengths: set[int] = set()
    return lengths.pop() if _collect(batch, lengths) and len(lengths) == 1 else None


def _collect(value: Any, lengths: set[int]) -> bool:
    """Adds the first dimensions of arrays. False: the value may have another number of records than these say."""
    if _is_array(value):
        lengths.update(map(int, value.shape[:1]))
        return True
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return True
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, (bool, int, float, str, bytes)) for item in value):
            lengths.add(len(value))
            return True
        return not _may_be_records(value) and all(_collect(item, lengths) for item in value)
    fields = _fields(value)
    return fields is not None and all(_collect(item, lengths) for item in fields.values())


def _is_array(value: Any) -> bool:
    return isinstance(getattr(value, "shape", None), tuple)


def _fields(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _may_be_records(values: list[Any] | tuple[Any, ...]) -> bool:
    """True for a list of values of one form: records that were not stacked."""
    if hasattr(values, "_fields") or len(values) == 1:
        return False
    forms = {repr(_form(value, shapes=len(values) <= PAIR)) for value in values}
    return len(forms) == 1


def _form(value: Any, shapes: bool) -> Any:
    if _is_array(value):
        return (str(getattr(value, "dtype", "")), tuple(value.shape) if shapes else len(value.shape))
    if isinstance(value, (list, tuple)):
        return [_form(item, shapes) for item in value]
    fields = _fields(value)
    if fields is not None:
        return {str(name): _form(item, shapes) for name, item in fields.items()}
    return type(value).__name__
