"""Training loss of Hugging Face's Trainer: what is open between two logs goes through checkpoints."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Trainer

LOSS_FILE = "open_loss.json"
"""File in a checkpoint: by rank, the sum of losses since the last log, and the step of that."""


class OpenLoss:
    """The sum of training losses since the last log, which the Trainer begins anew when it resumes: its next log would be about
    other steps than that of a Trainer that was left alone."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._sum: Any = None
        """Tensor in which the Trainer adds up."""
        self._carried: dict[str, Any] | None = None
        self._rank = 0
        log = trainer._maybe_log_save_evaluate

        @functools.wraps(log)
        def log_with_what_was_open(tr_loss: Any, *arguments: Any, **named: Any) -> Any:
            self._sum = tr_loss
            self._add()  # in a version that keeps its sum to itself until now
            return log(tr_loss, *arguments, **named)

        trainer._maybe_log_save_evaluate = log_with_what_was_open  # type: ignore[method-assign]

    def state(self) -> dict[str, Any]:
        """This rank's part."""
        total = 0.0 if self._sum is None else float(self._sum.item())
        return {"sum": total, "last_logged": int(self._trainer._globalstep_last_logged)}

    def resume(self, directory: Path, rank: int) -> None:
        """Reads what all ranks had open; none in a checkpoint of a former version. Raises OSError."""
        if (path := directory / LOSS_FILE).exists():
            self._carried, self._rank = json.loads(path.read_text()), rank

    def begin(self) -> None:
        """Called when the Trainer has begun its sum."""
        if self._carried is not None:
            self._sum = getattr(self._trainer, "_tr_loss", None)
            self._trainer._globalstep_last_logged = self._carried["last_logged"]
            # The summary at the end is about the steps of this process alone.
            self._trainer._total_loss_scalar = -sum(self._carried["sums"]) / len(self._carried["sums"])
            self._add()

    def _add(self) -> None:
        if self._carried is not None and self._sum is not None:
            sums, self._carried = self._carried["sums"], None
            other = self._trainer.args.world_size != len(sums)
            self._sum += sum(sums) / len(sums) if other else sums[self._rank]
