"""Fast saving and restoring of NumPy's global generator: in a microsecond if possible.

`np.random.get_state` and `set_state` take some 90 microseconds together, and data made in the training process needs them for
every batch. NumPy can exchange the bit generator under the global one at once; what gets lost is the second half of a normal pair
that it may keep for the next call. Only `get_state` tells whether it keeps one, so that is called if the generator was used since
the last time: in a training that does not use it, once.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

STATE_WORDS = 625
"""Words of an MT19937's state: 624 words and the position among them (Matsumoto, Nishimura 1998)."""


class NumpyAside:
    """Not thread-safe, as NumPy's global generator is not."""

    def __init__(self) -> None:
        self._spare: list[np.random.MT19937] = []
        self._seen: Any = None
        """The training's generator, and its words as they are in memory."""
        self._words: Any = None
        self._without_half: tuple[int, int, int] | None = None
        """Mark of a state that was seen to keep no half of a normal pair."""

    def enter(self, seed: int) -> tuple[Any, Any]:
        """Replaces the global generator by another one, with this seed. Returns the argument for `leave`."""
        training = np.random.mtrand.get_bit_generator()
        if training is not self._seen:
            self._seen, self._words, self._without_half = training, _words(training), None
        state: Any = None
        if self._words is None or _mark(self._words) != self._without_half:
            state = np.random.get_state(legacy=False)
            if self._words is not None and not state["has_gauss"]:
                self._without_half, state = _mark(self._words), None
        np.random.mtrand.set_bit_generator(self._spare.pop() if self._spare else np.random.MT19937(0))
        seed_numpy(seed)
        return training, state

    def leave(self, entered: tuple[Any, Any]) -> None:
        training, state = entered
        used: Any = np.random.mtrand.get_bit_generator()
        if type(used) is np.random.MT19937:
            self._spare.append(used)
        np.random.mtrand.set_bit_generator(training)
        if state is not None:
            np.random.set_state(state)


def seed_numpy(seed: int) -> None:
    """Seeds the global generator with the lower 32 bits. All 63, as a list, would go through NumPy's array functions: 8
    microseconds by themselves, 100 in a training loop whose data fill the processor's cache."""
    np.random.seed(seed & 0xFFFFFFFF)


def _words(generator: Any) -> Any:
    """The state as it is in memory. None: a user's generator of another kind."""
    if type(generator) is not np.random.MT19937:
        return None
    return (ctypes.c_uint32 * STATE_WORDS).from_address(generator.ctypes.state_address)


def _mark(words: Any) -> tuple[int, int, int]:
    """Mark that changes with each number drawn: the position does, and every 624 numbers all words do."""
    return words[STATE_WORDS - 1], words[0], words[STATE_WORDS - 2]
