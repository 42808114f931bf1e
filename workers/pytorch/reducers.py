"""Metrics that are not an average over batches: an F1 score, a confusion matrix, a maximum."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.workers.errors import UserError
from tenuto.workers.harness import signatures
from tenuto.workers.pytorch.metrics import to_number, to_numbers

if TYPE_CHECKING:
    from tenuto.workers.pytorch.distributed.ranks import Ranks


class MetricReducer(ABC):
    """Collects values over many batches, and computes metrics from them. Wrap it with `context.wrap_reducer`; give it methods
    of your own to call in `train_batch` and `evaluate_batch`."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets everything: a new reporting period or validation begins."""

    @abstractmethod
    def per_slot_reduce(self) -> Any:
        """Returns the values that this process collected, in a picklable form."""

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: Sequence[Any]) -> Any:
        """Returns one number, or a dict of metrics. `per_slot_metrics`: results of `per_slot_reduce`, one of each process of the
        trial. After a change of the number of processes, there may be more results than processes."""

    def state_dict(self) -> Mapping[str, Any]:
        """State for a checkpoint between two reports of training metrics; by default all attributes."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gets a result of `state_dict` (`state`), of this process or of one that no longer exists."""
        vars(self).update(state)


_NO_VALUE = object()


class FunctionReducer(MetricReducer):
    """Result of `context.wrap_reducer(function)`: calls the function with all values given to `update`."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.function = function
        self.values: list[Any] = []

    def update(self, value: Any) -> None:
        """Adds a value, which must be picklable. Tensors are kept as they are; detach those that need no gradient."""
        self.values.append(value.detach() if callable(getattr(value, "detach", None)) else value)

    def reset(self) -> None:
        self.values = []

    def per_slot_reduce(self) -> list[Any]:
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: Sequence[list[Any]]) -> Any:
        """Calls the function with the values in the order of one process, where each batch is one `update`: the first of each
        rank, then the second of each."""
        rounds = itertools.zip_longest(*per_slot_metrics, fillvalue=_NO_VALUE)
        return self.function([value for values in rounds for value in values if value is not _NO_VALUE])

    def state_dict(self) -> Mapping[str, Any]:
        return {"values": self.values}


def check_reducer(reducer: MetricReducer) -> None:
    """Raises UserError if the reducer, or its function, cannot be called with its arguments."""
    if isinstance(reducer, FunctionReducer):
        signatures.check_function(reducer.function, ("values",))
    else:
        calls = {"reset": (), "per_slot_reduce": (), "cross_slot_reduce": ("per_slot_metrics",), "load_state_dict": ("state",)}
        signatures.check_methods(reducer, MetricReducer, calls)


class WrappedReducer:
    """A reducer, the metric's name, and when it is used."""

    def __init__(self, reducer: MetricReducer, name: str | None, for_training: bool, for_validation: bool) -> None:
        self.reducer, self.name, self.for_training, self.for_validation = reducer, name, for_training, for_validation
        self.carried: list[Mapping[str, Any]] = []
        """States of ranks that no longer exist: their values are part of the next training report."""

    def training_metrics(self, ranks: Ranks | None = None) -> dict[str, float]:
        """Like `metrics`, and begins a new reporting period."""
        own = [self.reducer.per_slot_reduce()]
        if self.carried:
            own = copy.deepcopy(own)  # `reset` may empty what it refers to
            for state in self.carried:
                self.reducer.reset()
                self.reducer.load_state_dict(state)
                own.append(copy.deepcopy(self.reducer.per_slot_reduce()))
        metrics = self._metrics(own, ranks)
        self.carried = []
        self.reducer.reset()
        return metrics

    def metrics(self, ranks: Ranks | None = None) -> dict[str, float]:
        """Metrics of the reducer. `ranks`: over all of them. Raises UserError if the result is not one number, or a dict of
        numbers, as it was wrapped."""
        return self._metrics([self.reducer.per_slot_reduce()], ranks)

    def _metrics(self, own: list[Any], ranks: Ranks | None) -> dict[str, float]:
        reducer = self.reducer
        result = reducer.cross_slot_reduce(own if ranks is None else [value for each in ranks.objects(own) for value in each])
        function = getattr(reducer, "function", None)
        where, at = (f"{type(reducer).__name__}.cross_slot_reduce", type(reducer).cross_slot_reduce)
        if function is not None:
            where, at = f"the reducer {getattr(function, '__name__', function)!s}", function
        if self.name is not None:
            return {self.name: to_number(self.name, result, where, at)}
        if isinstance(result, Mapping):
            return to_numbers(result, where, at)
        raise UserError(f"{where} returned one value, so its metric needs a name: context.wrap_reducer(..., name=...).", at=at)
