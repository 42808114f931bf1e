"""Randomness as a function of the trial: a generator is seeded from (trial seed, purpose, position), or its state is saved."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from tenuto.workers.harness.randomness import derive_seed as derive_seed
from tenuto.workers.pytorch.numpy_random import NumpyAside, seed_numpy
from tenuto.workers.pytorch.python_random import PythonAside

_NUMPY = NumpyAside()
_PYTHON = PythonAside()


def seed_processor(seed: int) -> None:
    """Seeds Python, NumPy and torch on the CPU."""
    random.seed(seed)
    seed_numpy(seed)
    torch.default_generator.manual_seed(seed)


def seed_everything(seed: int) -> None:
    seed_processor(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(seed) if _one_device else torch.cuda.manual_seed_all(seed)


def rank_seed(seed: int, rank: int) -> int:
    """Seed of random operations in training, such as dropout: rank 0 draws as a single process does."""
    return derive_seed(seed, "training") if rank == 0 else derive_seed(seed, "training", rank)


_one_device = False


def use_one_device() -> None:
    """Restricts this process to its own GPU: it sees those of other ranks, too."""
    global _one_device
    _one_device = True


def _cuda_states() -> list[torch.Tensor]:
    return [torch.cuda.get_rng_state()] if _one_device else torch.cuda.get_rng_state_all()


def _restore_cuda(states: list[torch.Tensor]) -> None:
    first = torch.cuda.current_device() if _one_device and states else 0
    for index, value in enumerate(states[: 1 if _one_device else torch.cuda.device_count()]):
        torch.cuda.set_rng_state(value, first + index)


def random_state(cuda: bool = True) -> dict[str, Any]:
    """State of all global generators, as plain data and tensors."""
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
    """Context with generators seeded by `seed`; they are restored at its end.

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
