"""Moves batches to the device that computes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def to_device(data: Any, device: torch.device) -> Any:
    if isinstance(data, torch.Tensor):
        return data if data.is_cpu and device.type == "cpu" else data.to(device, non_blocking=True)
    if type(data) is list:  # what loaders make; the questions below cost more than they look: none of it is in the cache
        return [to_device(value, device) for value in data]
    if callable(getattr(data, "to", None)):
        return data.to(device)
    if isinstance(data, Mapping):
        return {key: to_device(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(value, device) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(to_device(value, device) for value in data)
    return data
