"""State of a script in a checkpoint: copied at once, and written while the script trains on."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from tenuto.workers.pytorch import snapshots, state
from tenuto.workers.pytorch.tensor_memory import size_bytes


class ScriptStates:
    """Copies of one script's state, which take turns in the same memory."""

    def __init__(self) -> None:
        self._buffers = snapshots.Buffers()

    def size_bytes(self, values: Mapping[str, Any]) -> int:
        """Memory that the next copy needs beyond what is kept for it. 0: none."""
        return 0 if self._buffers.has_free else size_bytes(dict(values))

    def snapshot(self, values: Mapping[str, Any]) -> Callable[[Path], None]:
        """Copies the values, and returns a function that writes the copy into a directory, once. What has to be pickled is
        pickled at once. Raises UserError if it cannot be; the function raises OSError."""
        plain, others = state.by_kind(values)
        pickled: dict[str, Any] | state.Pickled = state.Pickled.of(others) if others else {}
        copier = snapshots.Copier(self._buffers)
        copier.look(plain)
        copy = copier(plain)
        copier.finish()

        def write(directory: Path) -> None:
            try:
                copier.wait()
                state.save_kinds(copy, pickled, directory)
            finally:
                copier.done()

        return write

    def copied(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], Callable[[], None], Callable[[], None]]:
        """A copy for a file of another library's; a function that returns when all of it is copied, and one to be called when it
        is no longer needed. Raises UserError for values that cannot be pickled."""
        plain, others = state.by_kind(values)
        again: dict[str, Any] = {}
        if others:
            data = io.BytesIO(state.Pickled.of(others).data)
            again = torch.load(data, map_location="cpu", weights_only=False)  # this process has just written it
        copier = snapshots.Copier(self._buffers)
        copier.look(plain)
        copy = copier(plain)
        copier.finish()
        return {name: copy[name] if name in copy else again[name] for name in values}, copier.wait, copier.done

    @staticmethod
    def write(values: Mapping[str, Any], directory: Path) -> None:
        """Writes the values themselves. Raises OSError, UserError."""
        state.save_parts(values, directory)

    @staticmethod
    def load(directory: Path) -> dict[str, Any]:
        """Values in a checkpoint's files, on the CPU. Raises OSError."""
        return state.load_parts(directory)
