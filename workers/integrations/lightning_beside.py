"""Lightning's own checkpoint, copied when it is due and written while training goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch.plugins.io import AsyncCheckpointIO, CheckpointIO, TorchCheckpointIO

from tenuto.workers.core_api.foreign_files import write_beside

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from tenuto.workers.core_api import Run


class _Catching(CheckpointIO):  # type: ignore[misc]
    """Takes what Lightning would write."""

    def __init__(self, own: CheckpointIO) -> None:
        self._own = own
        self.caught: list[tuple[dict[str, Any], Any, Any]] = []

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        self.caught.append((checkpoint, path, storage_options))

    def load_checkpoint(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        loaded: dict[str, Any] = self._own.load_checkpoint(*arguments, **named)
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        self._own.remove_checkpoint(path)


def save_beside(trainer: Trainer, run: Run, steps: int, path: Path) -> None:
    """`trainer.save_checkpoint(path)`, in the block of `run.checkpoint.save`. A strategy that writes files in its own way, and a
    plugin of the user's, write them at once; Lightning's AsyncCheckpointIO would write them when the block has ended, so what it
    stands before is used."""
    own = trainer.strategy.checkpoint_io
    writer = own.checkpoint_io if isinstance(own, AsyncCheckpointIO) else own
    catching = _Catching(writer) if type(writer) is TorchCheckpointIO else None
    trainer.strategy.checkpoint_io = catching or writer
    try:
        trainer.save_checkpoint(path)
    finally:
        trainer.strategy.checkpoint_io = own
    for checkpoint, target, options in catching.caught if catching is not None else ():
        write_beside(run.checkpoint, steps, checkpoint, _writing(writer, target, options))


def _writing(own: Any, target: Any, options: Any) -> Callable[[Mapping[str, Any]], None]:
    return lambda copy: own.save_checkpoint(dict(copy), target, options)
