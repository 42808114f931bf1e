"""Horovod between the ranks of a script."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tenuto.workers.harness.framework import Framework

if TYPE_CHECKING:
    from tenuto.workers.harness.script_waits import ScriptWaits
    from tenuto.workers.launch.gang import Gang


class Horovod(Framework):
    lost_errors = frozenset({"HorovodInternalError"})
    strategies = frozenset({"horovod"})

    def connect(self, gang: Gang) -> None:
        from tenuto.workers.horovod import rendezvous

        rendezvous.prepare(gang)

    def watch_waits(self, waits: ScriptWaits) -> None:
        from tenuto.workers.horovod import script_waits

        script_waits.watch(waits)

    def leave(self, gang: Gang) -> None:
        if (rendezvous := sys.modules.get("tenuto.workers.horovod.rendezvous")) is not None:
            rendezvous.finish(gang)


FRAMEWORK = Horovod()
