"""A batch in words, for errors of code that expected another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from tenuto.workers.errors import explain_with

PARTS_SHOWN_MAX = 6
DEPTH_SHOWN_MAX = 3
EXPECTED = (TypeError, ValueError, LookupError, AttributeError, RuntimeError)
"""Errors by which code that expected another batch fails."""

Step = TypeVar("Step", bound=Callable[..., Any])


def naming_batch(step: Step) -> Step:
    """The step, whose errors say what its first argument, the batch, is."""

    def call(batch: Any, *arguments: Any) -> Any:
        try:
            return step(batch, *arguments)
        except EXPECTED as error:
            explain_with(error, f"the batch: {words(batch)}")
            raise

    return call  # type: ignore[return-value]


def words(value: Any, depth: int = 0) -> str:
    """Types and shapes, without values."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    kind = type(value).__name__
    if depth < DEPTH_SHOWN_MAX and isinstance(value, Mapping):
        items = list(value.items())[: PARTS_SHOWN_MAX + 1]
        return f"{kind} of " + _some([f"{name!r}: {words(item, depth + 1)}" for name, item in items])
    if depth < DEPTH_SHOWN_MAX and isinstance(value, (list, tuple)):
        return f"{kind} of " + _some([words(item, depth + 1) for item in value[: PARTS_SHOWN_MAX + 1]])
    return kind


def _some(parts: list[str]) -> str:
    return f"({', '.join(parts[:PARTS_SHOWN_MAX])}{', ...' if len(parts) > PARTS_SHOWN_MAX else ''})"
