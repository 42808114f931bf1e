"""Fast saving and restoring of Python's global generator: in two microseconds if possible.

`random.getstate` and `setstate` turn the state into 625 Python integers and back. That is 10 microseconds by itself and 50 in a
training loop, because it evicts other data from the processor's cache; data made in the training process needs it for every
batch. CPython keeps the state as one piece of memory behind the object's header. If a check confirms that, the piece is copied
and put back as it is; otherwise the two functions are used.
"""

from __future__ import annotations

import _random
import ctypes
import random
from typing import Any

STATE_WORDS = 625
"""Words of an MT19937's state (Matsumoto, Nishimura 1998): here the position, then 624 words."""
STATE_BYTES = 4 * STATE_WORDS
PADDING_BYTES_MAX = 8


class PythonAside:
    """Not thread-safe, as the global generator is not."""

    def __init__(self) -> None:
        self._generator: Any = random._inst  # type: ignore[attr-defined]
        self._memory = _state_memory(self._generator)

    def enter(self, seed: int) -> Any:
        """Seeds the global generator. Returns the argument for `leave`."""
        if self._memory is None:
            before: Any = random.getstate()
            random.seed(seed)
            return before
        generator = self._generator
        before = self._memory.raw, generator.gauss_next
        _random.Random.seed(generator, seed)  # what `random.seed` does with a number
        generator.gauss_next = None
        return before

    def leave(self, entered: Any) -> None:
        if self._memory is None:
            random.setstate(entered)
        else:
            self._memory.raw, self._generator.gauss_next = entered


def _state_memory(generator: Any) -> ctypes.Array[ctypes.c_char] | None:
    """Memory of the state behind the header. None if it does not match `getstate`, word for word."""
    size_bytes = _random.Random.__basicsize__ - object.__basicsize__
    if not STATE_BYTES <= size_bytes <= STATE_BYTES + PADDING_BYTES_MAX or not isinstance(generator, random.Random):
        return None
    address = id(generator) + object.__basicsize__
    position, *words = (ctypes.c_uint32 * STATE_WORDS).from_address(address)
    return (ctypes.c_char * STATE_BYTES).from_address(address) if generator.getstate()[1] == (*words, position) else None
