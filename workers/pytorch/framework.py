"""PyTorch as a framework that workers train with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tenuto.workers.harness.framework import Framework

if TYPE_CHECKING:
    from tenuto.workers.harness.script_waits import ScriptWaits

PRELOADED = (
    "tenuto.workers.pytorch.trainer",
    "torch._dynamo",  # every torch optimizer imports it: a second and a half
)


class PyTorch(Framework):
    usual = True
    preloads_if_there = ("torch.profiler._cupti_monitor", "torch.utils.serialization.config")
    library = "torch"
    lost_errors = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})
    trial_class = "tenuto.pytorch.PyTorchTrial"

    def preloads(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return PRELOADED

    def reseed(self) -> None:
        sys.modules["torch"].seed()

    def rehearsals(self) -> tuple[Callable[[], None], ...]:
        from tenuto.workers.pytorch import rehearsal

        return rehearsal.PARTS

    def note_state(self) -> Callable[[], str]:
        from tenuto.workers.pytorch import kept_state

        return kept_state.note()

    def end_helpers(self) -> None:
        from tenuto.workers.pytorch import loader_helpers

        loader_helpers.end_helpers()

    def watch_waits(self, waits: ScriptWaits) -> None:
        from tenuto.workers.pytorch import script_waits

        script_waits.watch(waits)


FRAMEWORK = PyTorch()
