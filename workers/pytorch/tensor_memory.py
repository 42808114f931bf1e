"""Memory of tensors: identity, size, and the parts that several of them share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

MemoryKey = tuple[Any, ...]


def size_bytes(value: Any) -> int:
    """Bytes of the tensors in a value."""
    return sum({identity_of(tensor): tensor.nbytes for tensor in tensors_in(value) if tensor.layout is torch.strided}.values())


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors_in(item)


def shape_of(tensor: torch.Tensor) -> MemoryKey:
    return (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())


def identity_of(tensor: torch.Tensor) -> MemoryKey:
    """Identity of a tensor's memory, equal for tensors that share all of it."""
    return (tensor.device, tensor.data_ptr() or id(tensor), *shape_of(tensor))


def whole_of(tensor: torch.Tensor) -> MemoryKey:
    """Identity of the memory of which the tensor is a part."""
    return (tensor.device, tensor.untyped_storage().data_ptr())


def overlap(tensors: list[torch.Tensor]) -> bool:
    """True if two of these tensors of one memory have a byte in common, as far as the first and the last one of each say."""
    begun = 0
    for start, end in sorted(_bounds(tensor) for tensor in tensors):
        if start < begun:
            return True
        begun = max(begun, end)
    return False


def _bounds(tensor: torch.Tensor) -> tuple[int, int]:
    start = int(tensor.storage_offset())
    last = start + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start * tensor.element_size(), (last + 1) * tensor.element_size()


def has_values_of_its_memory(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized)


def memory_like(like: torch.Tensor) -> torch.Tensor:
    """Memory for a copy: pinned for one of a GPU's tensor, unless the system has no more of that. (Torch rounds pinned memory up
    to powers of two.)"""
    if like.device.type == "cuda":
        with contextlib.suppress(RuntimeError):
            return torch.empty_like(like, device="cpu", requires_grad=False, pin_memory=True)
    return torch.empty_like(like, device="cpu", requires_grad=False)


def is_plain_memory(tensor: torch.Tensor) -> bool:
    """True if the tensor's values are one contiguous piece of this process's memory."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and (tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)))
        and not tensor.is_inference()  # their changes are not counted
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_quantized
    )
