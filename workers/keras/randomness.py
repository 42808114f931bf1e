"""Generators that a Keras training may draw from: Python's, NumPy's, Keras's own and the back end's."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_SEED_LIMIT = 2**31
"""Limit of TensorFlow's seeds."""


_one_gpu = False


def use_one_gpu() -> None:
    """Restricts this process to its own GPU: it sees those of other ranks, too."""
    global _one_gpu
    _one_gpu = True


def _gpu_states(torch: Any) -> list[Any]:
    return [torch.cuda.get_rng_state()] if _one_gpu else list(torch.cuda.get_rng_state_all())


def seed_everything(seed: int) -> None:
    """Seeds all global generators, including Keras's, which `keras.random` uses by default. `keras.utils.set_random_seed` is
    not used, because it imports TensorFlow if that is installed."""
    state = _global_generator().state  # it draws its first state from Python's generator, which is seeded after that
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.random.set_seed(seed % _SEED_LIMIT)
    if (torch := sys.modules.get("torch")) is not None:
        if _one_gpu:
            torch.default_generator.manual_seed(seed)
            torch.cuda.manual_seed(seed)
        else:
            torch.manual_seed(seed)
    state.assign(np.asarray([seed % _SEED_LIMIT, 0], dtype=np.asarray(state.numpy()).dtype))


def random_state() -> dict[str, Any]:
    """State of all global generators, as plain data and arrays."""
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "keras": np.array(_global_generator().state.numpy()),
    }
    if (operations := _tensorflow_seeds()) is not None:
        found["tensorflow"] = operations.getstate()
        found["tensorflow generator"] = _tensorflow_generator_state()
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = torch.get_rng_state().numpy().copy()
        found["torch gpu"] = [state.numpy().copy() for state in _gpu_states(torch)] if torch.cuda.is_available() else []
    return found


def restore_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    _global_generator().state.assign(state["keras"])
    operations = _tensorflow_seeds()
    if operations is not None and "tensorflow" in state:
        operations.setstate(state["tensorflow"])
        if state["tensorflow generator"] is not None:
            sys.modules["tensorflow"].random.get_global_generator().state.assign(state["tensorflow generator"])
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(torch.from_numpy(state["torch"]))
        first = torch.cuda.current_device() if _one_gpu and state["torch gpu"] else 0
        for index, value in enumerate(state["torch gpu"][: 1 if _one_gpu else torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.from_numpy(value), first + index)


@contextmanager
def isolated_randomness(seed: int) -> Iterator[None]:
    """Context with generators seeded by `seed`; they are restored at its end."""
    state = random_state()
    try:
        random.seed(seed)
        np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
        if (operations := _tensorflow_seeds()) is not None:
            operations.seed(seed)
        if (torch := sys.modules.get("torch")) is not None:
            torch.default_generator.manual_seed(seed)
        yield
    finally:
        restore_random_state(state)


@contextmanager
def building(seed: int) -> Iterator[None]:
    """Like `isolated_randomness`; a tf.data pipeline that is built inside takes its seeds from `seed`, too."""
    with isolated_randomness(seed):
        if "tensorflow" not in sys.modules:
            yield
            return
        from tensorflow.python.eager import context

        eager = context.context()
        before, generator = eager._seed, eager._rng
        # Not set_seed, which would restart all random operations of the training.
        eager._seed, eager._rng = seed % _SEED_LIMIT, random.Random(seed)
        try:
            yield
        finally:
            eager._seed, eager._rng = before, generator


def seed_generators(model: Any) -> list[Any]:
    """States of the generators that the model's layers (dropout, augmentation) hold, in the layers' order."""
    found: dict[int, Any] = {}
    for layer in model._flatten_layers():
        for generator in getattr(layer, "_seed_generators", ()):
            found[id(generator)] = generator.state
    return list(found.values())


def _global_generator() -> Any:
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator()


def _tensorflow_seeds() -> Any:
    """The generator from which TensorFlow draws a seed for each random operation without one."""
    if "tensorflow" not in sys.modules:
        return None
    from tensorflow.python.eager import context

    return getattr(context.context(), "_rng", None)


def _tensorflow_generator_state() -> Any:
    """State of the global tf.random.Generator. None: it was never used, and is not made here."""
    from tensorflow.python.ops import stateful_random_ops

    generator = stateful_random_ops.global_generator
    return None if generator is None else np.array(generator.state.numpy())
