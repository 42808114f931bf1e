"""Keras, on TensorFlow or torch, as a framework that workers train with; and scripts on TensorFlow alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tenuto.workers.harness.framework import Framework
from tenuto.workers.pytorch.framework import PRELOADED as TORCH

if TYPE_CHECKING:
    from tenuto.workers.harness.script_waits import ScriptWaits
    from tenuto.workers.launch.gang import Gang

_OURS = ("keras", "tenuto.workers.keras.trainer")
PRELOADED: Mapping[str, tuple[str, ...]] = {"tensorflow": ("tensorflow", *_OURS), "torch": (*TORCH, *_OURS)}
"""Modules by back end. TensorFlow starts its threads with the first tensor, so it can be forked after its import."""
_SETS_VARIABLES = re.compile(rb"\benviron\b|\bputenv\b|\bset_backend\b")
_READ_BY_IMPORTS = re.compile(rb"\b(?:KERAS|TF|XLA|CUDA|OMP|MKL|ONEDNN)_")
"""Prefixes of variables that these libraries read when they are imported. Code that sets one must run before the import."""


class Keras(Framework):
    announced_by = ("tensorflow", "keras", "tenuto.keras", "determined.keras")
    variables = ("KERAS_BACKEND",)
    library = "tensorflow"
    trial_class = "tenuto.keras.KerasTrial"
    strategies = frozenset({"multi_worker_mirrored"})

    def preloads(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return PRELOADED.get(environment.get("KERAS_BACKEND") or "tensorflow", ())

    def must_begin(self, code: bytes) -> bool:
        return bool(_SETS_VARIABLES.search(code) and _READ_BY_IMPORTS.search(code))

    def reseed(self) -> None:
        sys.modules["tensorflow"].random.set_seed(None)

    def connect(self, gang: Gang) -> None:
        from tenuto.workers.keras import cluster

        cluster.prepare(gang)

    def watch_waits(self, waits: ScriptWaits) -> None:
        from tenuto.workers.keras import graph_waits

        graph_waits.watch(waits)


FRAMEWORK = Keras()
