"""The wish of a trial's code to end its training, which all ranks follow at the same position."""

from __future__ import annotations

from tenuto.workers.connection.directives import Directive, DirectiveBox
from tenuto.workers.harness.trainer import Trainer
from tenuto.workers.launch.gang import Gang, GangBox


class EndWish:
    def __init__(self, trainer: Trainer, box: DirectiveBox, gang: Gang | None) -> None:
        self._trainer, self._box, self._gang = trainer, box, gang
        self.reason: str | None = None
        """Reason for which the training ends at the present position. None: it goes on."""

    def interrupts(self, seen: Directive) -> bool:
        """Called at each boundary, in the place of `DirectiveBox.differs`: True as well if the training ends there."""
        wish = self._trainer.stop_requested
        if isinstance(self._box, GangBox):
            if wish is not None:
                self._box.ask_end(wish)
            differs = self._box.differs(seen)
            self.reason = self._box.ending
            return differs
        self.reason = wish
        return wish is not None or self._box.differs(seen)

    def meet(self) -> None:
        """Called after each validation, by all ranks: what its callbacks wish is followed at once."""
        wish = self._trainer.stop_requested
        if self._gang is None:
            self.reason = wish
        elif self.reason is None:
            self.reason = next((item for item in self._gang.gather(wish, "end") if item is not None), None)
