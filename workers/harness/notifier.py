"""Notices that model code sends to people: bounded in size and rate, and only from the process that reports for the trial."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import get_args

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.base import Model
from tenuto.schemas.events.trial import NOTICE_CHARACTERS_MAX, Level
from tenuto.schemas.reports import NoticeReport
from tenuto.schemas.text import storable
from tenuto.workers.errors import UserError

NOTICES_BURST_MAX = 20.0
"""Most notices at once; afterwards NOTICES_PER_SECOND_MAX. Each is an event for ever, and a message to people."""
NOTICES_PER_SECOND_MAX = 0.1


class Notifier:
    """Notifier of one start of one trial. `report` sends on the lane `tracker`; `say` writes a line into the trial's log."""

    def __init__(
        self,
        assignment: Assignment,
        report: Callable[[Model], None],
        say: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._trial_id, self._allocation_id = assignment.trial_id, assignment.allocation_id
        self._report, self._say, self._monotonic = report, say, monotonic
        self._lock = threading.Lock()
        self._allowed, self._looked_at, self._left_out = NOTICES_BURST_MAX, monotonic(), 0
        self.process_id = os.getpid()

    def notify(self, text: str, level: Level) -> bool:
        """True if the notice is sent; False if there were too many. Raises UserError."""
        if level not in get_args(Level):
            raise UserError(f"notify(level={level!r}): the level must be one of {', '.join(get_args(Level))}.")
        if not isinstance(text, str) or not text.strip():
            raise UserError("notify(text): the text must be a string that is not empty.")
        with self._lock:
            now = self._monotonic()
            earned = (now - self._looked_at) * NOTICES_PER_SECOND_MAX
            self._allowed, self._looked_at = min(self._allowed + earned, NOTICES_BURST_MAX), now
            if self._allowed < 1:
                self._left_out += 1
                if self._left_out == 1:
                    self._say(
                        f"warning: notices are left out, because there are more than {NOTICES_BURST_MAX:.0f} at once and then "
                        f"{60 * NOTICES_PER_SECOND_MAX:.0f} a minute; notify only of what a person should look at."
                    )
                return False
            self._allowed -= 1
            left_out, self._left_out = self._left_out, 0
        if left_out:
            self._say(f"{left_out} notices were left out.")
        shown = storable(text.strip())[:NOTICE_CHARACTERS_MAX]
        self._report(NoticeReport(trial_id=self._trial_id, allocation_id=self._allocation_id, text=shown, level=level))
        return True


_current: Notifier | None = None


def install(notifier: Notifier | None) -> None:
    """Sets the notifier of this process."""
    global _current
    _current = notifier


def notify(text: str, level: Level = "info") -> bool:
    """Records a notice, which webhooks with the trigger `notice` send to people; level: info, warning or error.

    The text has NOTICE_CHARACTERS_MAX characters at most; the rest is cut. Of more than NOTICES_BURST_MAX at once, and then 6 a
    minute, the notice is left out. Returns True if it is sent. Of several ranks, rank 0's notices count. Outside a trial, and in
    helper processes of one, nothing is sent. Raises UserError for another level and an empty text.
    """
    notifier = _current
    return notifier is not None and notifier.process_id == os.getpid() and notifier.notify(text, level)
