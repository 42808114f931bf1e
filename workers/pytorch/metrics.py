"""Conversion of the user's results to named numbers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tenuto.schemas.reports import metrics_refusal
from tenuto.workers.errors import UserError, WillRepeat


class Reducer(enum.Enum):
    """Reduction of `evaluate_batch`'s results to one number per metric."""

    AVG = "avg"
    """Average weighted by the batches' lengths, so that a short last batch has its proper weight."""
    SUM = "sum"
    """Sum over the batches."""
    MIN = "min"
    """Smallest value of a batch."""
    MAX = "max"
    """Largest value of a batch."""


AnyReducer = Reducer | Callable[[Sequence[float]], float]


def to_number(name: str, value: Any, where: str, at: Any = None) -> float:
    """The value as a number. Raises UserError for anything but a number, a bool or a value with one element. `at`: the user's
    function."""
    try:
        if isinstance(value, (bool, int, float)):
            return float(value)
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return float(value.detach().item())
        if getattr(value, "size", None) == 1:  # NumPy scalars and arrays
            return float(value.item())
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(
        f"{where} returned the metric {name!r} as {_kind(value)}; a metric must be one number or a tensor with one element.",
        at=at,
    )


def to_numbers(metrics: Any, where: str, at: Any = None) -> dict[str, float]:
    if not isinstance(metrics, Mapping):
        raise UserError(f"{where} returned {_kind(metrics)}; it must return a dict from metric name to number.", at=at)
    if why := metrics_refusal([str(name) for name in metrics]):
        raise UserError(f"What {where} returned is too much: {why}.", at=at)
    return {str(name): to_number(str(name), value, where, at) for name, value in metrics.items()}


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "nothing (None)" if value is None else f"a value of type {type(value).__name__}"


class TrainingMetrics:
    """Averages over the batches of a reporting period. Tensors of a GPU stay there until they are needed, because reading one
    makes the CPU wait."""

    def __init__(self, at: Any = None) -> None:
        """User errors name the place of `at`, the user's `train_batch`."""
        self._at = at
        self._values: dict[str, list[Any]] = {}

    def add(self, result: Any) -> None:
        """Adds the result of `train_batch` for one batch, a loss or a dict. Raises UserError."""
        for name, value in self._numbers(result).items():
            self._values.setdefault(name, []).append(value)

    def add_parts(self, results: Sequence[tuple[Any, float]]) -> None:
        """Adds the results of one batch in parts: those of this rank, each with its weight. Those of all ranks add up to the
        batch's value."""
        sums: dict[str, Any] = {}
        for result, weight in results:
            for name, value in self._numbers(result).items():
                sums[name] = value * weight + sums[name] if name in sums else value * weight
        for name, value in sums.items():
            self._values.setdefault(name, []).append(value)

    def _numbers(self, result: Any) -> dict[str, Any]:
        """Numbers, or tensors of a GPU that are read later."""
        if type(result) is dict or isinstance(result, Mapping):
            metrics = result
        elif result is None:
            raise UserError(
                "train_batch returned nothing (None); return the loss, or a dict such as {'loss': loss}.", at=self._at
            )
        else:
            metrics = {"loss": result}
        numbers: dict[str, Any] = {}
        for name, value in metrics.items():
            if not isinstance(value, torch.Tensor) or value.numel() != 1:
                numbers[str(name)] = to_number(str(name), value, "train_batch", self._at)
            else:
                numbers[str(name)] = value.item() if value.is_cpu else value.detach().clone()
        return numbers

    def take(self) -> dict[str, float]:
        averages = {name: sum(numbers) / len(numbers) for name, numbers in self.state().items()}
        self._values.clear()
        return averages

    def state(self) -> dict[str, list[float]]:
        """Sums since the last `take`, by metric."""
        return {
            name: [to_number(name, value, "train_batch", self._at) for value in values] for name, values in self._values.items()
        }

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        self._values = {name: list(values) for name, values in state.items()}


class EvaluationMetrics:
    """Reduces `evaluate_batch`'s results over the validation set."""

    def __init__(self, reducers: AnyReducer | Mapping[str, AnyReducer], at: Any = None, reducers_at: Any = None) -> None:
        """User errors name the place of `at`, the user's `evaluate_batch`, or of `reducers_at`, the origin of the reducers.
        Raises UserError for an object that is no reducer."""
        for reducer in reducers.values() if isinstance(reducers, Mapping) else (reducers,):
            if not isinstance(reducer, Reducer) and not callable(reducer):
                raise WillRepeat(
                    f"evaluation_reducer returned {reducer!r}; give pytorch.Reducer values or functions.", at=reducers_at
                )
        self._reducers, self._at = reducers, at
        self._values: dict[str, list[float]] = {}
        self._lengths: dict[str, list[int | None]] = {}
        self.counts_batches = False
        """True: `reduce` averaged over several batches without their lengths, as one is not known."""

    def add(self, result: Any, batch_length: int | None) -> None:
        """`batch_length`: weight of this batch in averages."""
        self.add_numbers(self.numbers(result), batch_length)

    def numbers(self, result: Any) -> dict[str, float]:
        return to_numbers(result, "evaluate_batch", self._at)

    def add_numbers(self, numbers: Mapping[str, float], batch_length: int | None) -> None:
        for name, value in numbers.items():
            self._values.setdefault(name, []).append(value)
            self._lengths.setdefault(name, []).append(batch_length)

    def reduce(self) -> dict[str, float]:
        return {name: self._reduce(name, values) for name, values in self._values.items()}

    def _reduce(self, name: str, values: list[float]) -> float:
        reducer = self._reducers.get(name, Reducer.AVG) if isinstance(self._reducers, Mapping) else self._reducers
        if not isinstance(reducer, Reducer):
            return to_number(name, reducer(values), "the evaluation reducer", reducer)
        if reducer is Reducer.SUM:
            return sum(values)
        if reducer is Reducer.MIN:
            return min(values)
        if reducer is Reducer.MAX:
            return max(values)
        known = [length for length in self._lengths[name] if length is not None]
        if len(known) < len(values):  # weights that are known for some batches only would be none
            self.counts_batches |= len(values) > 1
            known = []
        total = sum(known)
        if total == 0:
            return sum(values) / len(values)
        return sum(value * length for value, length in zip(values, known, strict=True)) / total


def batch_length(batch: Any) -> int:
    """Records in a batch: the first dimension of the first tensor found in it; 1 if there is none."""
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() > 0 else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for item in batch:
            if isinstance(item, (torch.Tensor, Mapping, list, tuple)):
                return batch_length(item)
        return max(1, len(batch))
    return 1
