"""Guesses which framework a run will import, from the text of the user's code, so that it starts from a process that has
imported that one. A wrong guess costs time or memory, and changes no result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tenuto.schemas.config.entrypoint import script_of

Framework = Literal["torch", "tensorflow", "keras on torch", "none"]
FRAMEWORK_VARIABLE = "TENUTO_WARM_FRAMEWORK"
"""Variable that tells a warm process what to import; it is not set in runs."""
FILES_MAX = 100
FILE_BYTES_MAX = 256 << 10
"""Most bytes read of a model directory: code is smaller, and more need not be known."""
_IMPORTS_KERAS = re.compile(rb"^[ \t]*(?:import|from)[ \t]+(?:tensorflow|keras|tenuto\.keras|determined\.keras)\b", re.MULTILINE)
_SETS_VARIABLES = re.compile(rb"\benviron\b|\bputenv\b|\bset_backend\b")
_READ_BY_IMPORTS = re.compile(rb"\b(?:KERAS|TF|XLA|CUDA|OMP|MKL|ONEDNN)_")
"""Prefixes of variables that these libraries read when they are imported. Code that sets one must run before the import."""
_COMMON: tuple[str, ...] = (
    "tenuto.workers.harness.main",
    "tenuto.workers.launch.supervisor",
    "tenuto.workers.core_api.script",
)
_TORCH = (
    *_COMMON,
    "tenuto.workers.pytorch.trainer",
    "torch._dynamo",  # every torch optimizer imports it: a second and a half
)
MODULES: Mapping[str, tuple[str, ...]] = {
    "torch": _TORCH,
    "tensorflow": (*_COMMON, "tensorflow", "keras", "tenuto.workers.keras.trainer"),
    "keras on torch": (*_TORCH, "keras", "tenuto.workers.keras.trainer"),
    "none": (),
}
"""Modules that a warm process imports. TensorFlow starts its threads with the first tensor, so it can be forked after its
import."""


def framework_of(entrypoint: str, context_directory: Path, environment: Mapping[str, str]) -> Framework:
    """Framework of a run. `environment`: of the run. PyTorch if nothing else is certain, such as for code that sets variables
    which Keras or TensorFlow would read when they are imported."""
    backend = environment.get("KERAS_BACKEND") or "tensorflow"
    if backend not in ("tensorflow", "torch"):
        return "torch"
    try:
        if not _IMPORTS_KERAS.search(_read(context_directory / _file_of(entrypoint))):
            return "torch"
        for path in sorted(context_directory.rglob("*.py"))[:FILES_MAX]:
            text = _read(path)
            if _SETS_VARIABLES.search(text) and _READ_BY_IMPORTS.search(text):
                return "torch"
    except (OSError, ValueError):  # the run will say what is wrong
        return "torch"
    return "tensorflow" if backend == "tensorflow" else "keras on torch"


def _file_of(entrypoint: str) -> str:
    """File of the module or script that the entrypoint names."""
    script = script_of(entrypoint)
    if script is not None and script.file is not None:
        return script.file
    module = script.module if script is not None and script.module is not None else entrypoint.partition(":")[0]
    return f"{module.replace('.', '/')}.py"


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)
