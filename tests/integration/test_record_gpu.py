"""GPUs on record, through the real binding and a driver library of our own: two cards, as NVML names them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHIM = r"""
#include <stdio.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { strncpy(text, "550.54.15", length); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    strncpy(text, (long)handle == 1 ? "NVIDIA Card A" : "NVIDIA Card B", length); return 0; }
int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) { snprintf(text, length, "GPU-%ld", (long)handle); return 0; }
int nvmlDeviceGetMemoryInfo(void *handle, memory *info) {
    info->total = 80ULL << 30; info->free = info->used = 0; return FAILS; }
"""
PRINT = """
import json, os
from tenuto.workers.record.hardware import hardware
found, drivers = hardware(os.environ)
print(json.dumps([[gpu.model_dump() for gpu in found.gpus], drivers]))
"""


def seen(directory: Path, visible: str | None, fails: int = 0) -> tuple[list[dict[str, object]], dict[str, str]]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = directory / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-w", f"-DFAILS={fails}", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=SHIM, text=True, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(directory)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    gpus, drivers = json.loads(done.stdout)
    return gpus, drivers


@pytest.mark.parametrize(
    ("visible", "names"),
    [(None, ["NVIDIA Card A", "NVIDIA Card B"]), ("GPU-2", ["NVIDIA Card B"]), ("0", ["NVIDIA Card A"]), ("", [])],
)
def test_the_gpus_that_a_trial_may_use(tmp_path: Path, visible: str | None, names: list[str]) -> None:
    gpus, drivers = seen(tmp_path, visible)
    assert gpus == [{"name": name, "memory_gib": 80} for name in names]
    assert drivers == ({"nvidia": "550.54.15", "cuda": "12040"} if names else {})


def test_a_driver_that_fails_leaves_a_gap_and_no_error(tmp_path: Path) -> None:
    gpus, drivers = seen(tmp_path, None, fails=999)
    assert gpus == []
    assert drivers["nvidia"] == "550.54.15"
