"""Time that a script's rank waits for other ranks, measured in the library that connects them. In a synchronous step all ranks
take equally long, so only these waits tell a slow rank from those that wait for it.

Each framework knows where its library waits. Only time is measured; computations and messages stay as they are. If no wait is
found, every rank's step counts as its own work, and then all are alike: no rank is called slow by mistake. On GPUs the device
waits and not the process, so nothing is counted.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tenuto.workers.harness.after_import import Action, after_import
from tenuto.workers.harness.training import say
from tenuto.workers.launch.gang import Gang
from tenuto.workers.launch.progress import ProgressWriter


def if_known(watch: Action) -> Action:
    """Ignores a library whose internal names have changed in another version: then its waits are not seen, and the script
    runs."""

    @functools.wraps(watch)
    def watched(module: ModuleType) -> None:
        try:
            watch(module)
        except (AttributeError, ImportError) as error:
            name = module.__name__
            say(f"what ranks wait for in {name} is not seen in this version of it ({error}): slow ranks are not reported")

    return watched


class ScriptWaits:
    """Waits of one rank. Counts those of the thread that made it."""

    def __init__(self, gang: Gang) -> None:
        self.progress: ProgressWriter = gang.progress
        self._thread = threading.get_ident()
        self._device_waits: list[Callable[[], bool]] = []
        self._apart: list[Callable[[], float]] = []

    def watch(self, module: str, action: Action) -> None:
        """Runs the action once the script has imported the module. An error by which it shows that it does not know this version
        is told, and ignored."""
        after_import(module, if_known(action))

    def if_device_waits(self, asked: Callable[[], bool]) -> None:
        """`asked`: true if a device waits for the other ranks, and not this process."""
        self._device_waits.append(asked)

    def measured_apart(self, take: Callable[[], float]) -> None:
        """`take`: seconds waited since its last call, in time that is counted as the rank's own meanwhile."""
        self._apart.append(take)

    def tick(self) -> None:
        """The script has made a step."""
        if any(asked() for asked in self._device_waits):
            self.progress.waits_are_seen = False
        else:
            for take in self._apart:
                self.progress.add_own(-take())
        self.progress.tick()

    def here(self) -> bool:
        """True in the thread whose waits are counted."""
        return threading.get_ident() == self._thread

    def counted(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts as a wait."""

        @functools.wraps(wait)
        def waits(*arguments: Any, **named: Any) -> Any:
            if not self.here():
                return wait(*arguments, **named)
            with self.progress.waiting():
                return wait(*arguments, **named)

        return waits
