"""Waits for other ranks in Horovod, measured for scripts. Imports nothing of it."""

from __future__ import annotations

import sys
from types import ModuleType

from tenuto.workers.harness.script_waits import ScriptWaits

MODULES = ("mpi_ops", "optimizer", "functions", "sync_batch_norm")
"""Modules of `horovod.torch` that import `synchronize` by name."""


def watch(waits: ScriptWaits) -> None:
    waits.watch("horovod.torch", lambda module: _watch(module, waits))


def _watch(module: ModuleType, waits: ScriptWaits) -> None:
    plain = module.synchronize
    counted = waits.counted(plain)
    for name in ("", *(f".{name}" for name in MODULES)):
        part = sys.modules.get(f"horovod.torch{name}")
        if part is not None and getattr(part, "synchronize", None) is plain:
            part.synchronize = counted  # type: ignore[attr-defined]
