"""Randomness as a function of the trial: a generator is seeded from (trial seed, purpose, position), or its state is saved."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from tenuto.workers.harness.randomness import derive_seed as derive_seed
from tenuto.workers.pytorch.numpy_random import NumpyAside, seed_numpy
from tenuto.workers.pytorch.python_random import PythonAside

_NUMPY = NumpyAside()
_PYTHON = PythonAside()


def seed_processor(seed: int) -> None:
    """Python, NumPy and torch on the CPU."""
    random.seed(seed)
    seed_numpy(seed)
    torch.default_generator.manual_seed(seed)


def seed_everything(seed: int) -> None:
    seed_processor(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(seed) if _one_device else torch.cuda.manual_seed_all(seed)


_one_device = False


def use_one_device() -> None:
    """This process sees the GPUs of other ranks too, and must not touch those."""
    global _one_device
    _one_device = True


def _cuda_states() -> list[torch.Tensor]:
    return [torch.cuda.get_rng_state()] if _one_device else torch.cuda.get_rng_state_all()


def _restore_cuda(states: list[torch.Tensor]) -> None:
    first = torch.cuda.current_device() if _one_device and states else 0
    for index, value in enumerate(states[: 1 if _one_device else torch.cuda.device_count()]):
        torch.cuda.set_rng_state(value, first + index)


def random_state(cuda: bool = True) -> dict[str, Any]:
    """The state of all global generators, as plain data and tensors."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # type: ignore[misc]
    return {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
        "cuda": _cuda_states() if cuda and torch.cuda.is_available() else [],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    _restore_cuda(state["cuda"])


@contextmanager
def isolated_randomness(seed: int, cuda: bool = False) -> Iterator[None]:
    """What runs inside draws from generators seeded by `seed`; what runs after goes on as if nothing had happened.

    `cuda`: also the GPU's generators, whose state costs a device synchronisation.
    """
    torch_state = torch.get_rng_state()
    cuda_states = _cuda_states() if cuda and torch.cuda.is_available() else []
    python, numpy = _PYTHON.enter(seed), _NUMPY.enter(seed)
    try:
        torch.default_generator.manual_seed(seed)
        if cuda_states:
            torch.cuda.manual_seed(seed) if _one_device else torch.cuda.manual_seed_all(seed)
        yield
    finally:
        _PYTHON.leave(python)
        _NUMPY.leave(numpy)
        torch.set_rng_state(torch_state)
        if cuda_states:
            _restore_cuda(cuda_states)


OWN_GENERATORS_DEPTH = 6
"""A dataset, its transforms, their parts: generators sit shallow."""
OWN_GENERATORS_OBJECTS_MAX = 10_000
"""Objects looked at: a dataset may hold millions of records, and is looked through once per loader worker."""
_LEAVES = (str, bytes, int, float, complex, bool, type(None), torch.Tensor, np.ndarray, type, ModuleType)


def own_generators(*owners: Any) -> list[Any]:
    """Generators of random numbers that the objects, or what they are made of, keep as attributes: in a fixed order."""
    found: list[Any] = []
    seen: set[int] = set()
    queue = [(owner, 0) for owner in owners]
    while queue and len(seen) < OWN_GENERATORS_OBJECTS_MAX:
        value, depth = queue.pop()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)):
            found.append(value)
        elif depth < OWN_GENERATORS_DEPTH:
            queue.extend((part, depth + 1) for part in _parts(value))
    return found


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())[:OWN_GENERATORS_OBJECTS_MAX] if isinstance(value, dict) else []
    if isinstance(value, (list, tuple)):
        return list(value[:OWN_GENERATORS_OBJECTS_MAX])
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
    parts = [part for name, part in sorted(getattr(value, "__dict__", {}).items(), key=lambda item: str(item[0]))]
    owner = getattr(value, "__self__", None)  # of a bound method
    return parts if owner is None or isinstance(owner, type) else [*parts, owner]


def reseed(generator: Any, seed: int) -> None:
    """A generator of any kind that `own_generators` finds."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    elif isinstance(generator, np.random.RandomState):
        generator.seed([seed & 0xFFFFFFFF, seed >> 32])
    else:
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
