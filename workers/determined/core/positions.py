"""Steps that a script reports, as lengths of the search.

A script of Determined's says itself when a length is reached: by completing an operation of the search, or by ending. So the
newest validation is held until that is known: it is reported with its length, and one position is reported once.
"""

from __future__ import annotations

from tenuto.schemas.config import Unit

NEVER = 2**62
"""Steps of a length of which it is not known yet where the script reaches it."""


class DeterminedPositions:
    """Has the part of `core_api.ScriptLengths`, and of its schedule, that reports and checkpoints need."""

    epoch_batches: int | None = None

    def __init__(self, unit: Unit, script_decides: bool) -> None:
        self.unit = unit
        self._as_steps = unit == "batches" and not script_decides
        self._reached: dict[int, int] = {}
        """Length by the steps at which the script reached it."""

    @property
    def schedule(self) -> DeterminedPositions:
        return self

    def reach(self, steps: int, length: int) -> None:
        self._reached[steps] = max(length, self._reached.get(steps, 0))

    def length(self, steps: int) -> int:
        """Units trained at this position."""
        reached = max((length for at, length in self._reached.items() if at <= steps), default=0)
        return max(steps, reached) if self._as_steps else reached

    def target_batches(self, length: int) -> int:
        """First steps known to be this length."""
        known = min((at for at, reached in self._reached.items() if reached >= length), default=None)
        return known if known is not None else length if self._as_steps else NEVER

    def logs_at(self, steps: int) -> bool:
        return True

    def validates_at(self, steps: int) -> bool:
        return False

    def saves_at(self, steps: int) -> bool:
        return False
