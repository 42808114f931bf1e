"""Randomness as a function of the trial: a generator is seeded from (trial seed, purpose, position), or its state is saved."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A number in [0, 2**63) that depends on all arguments; equal on every machine."""
    key = "/".join([str(seed), *(str(part) for part in purpose)])
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def seed_processor(seed: int) -> None:
    """Python, NumPy and torch on the CPU."""
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch.default_generator.manual_seed(seed)


def seed_everything(seed: int) -> None:
    seed_processor(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def random_state(cuda: bool = True) -> dict[str, Any]:
    """The state of all global generators, as plain data and tensors."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # type: ignore[misc]
    return {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if cuda and torch.cuda.is_available() else [],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def isolated_randomness(seed: int, cuda: bool = False) -> Iterator[None]:
    """What runs inside draws from generators seeded by `seed`; what runs after goes on as if nothing had happened.

    `cuda`: also the GPU's generators, whose state costs a device synchronisation.
    """
    numpy_state = np.random.get_state(legacy=True)
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if cuda and torch.cuda.is_available() else []
    try:
        if cuda:
            seed_everything(seed)
        else:
            seed_processor(seed)
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)
