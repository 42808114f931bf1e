"""The class of machine that a run is on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from tenuto.schemas.record import Gpu, Hardware

GIB = 1 << 30


def hardware(environment: Mapping[str, str]) -> tuple[Hardware, dict[str, str]]:
    """The machine, with the GPUs that this process may use, and the versions of their drivers."""
    gpus, drivers = _gpus(environment.get("CUDA_VISIBLE_DEVICES"))
    found = Hardware(
        machine=platform.machine(),
        cpu_model=cpu_model(_read("/proc/cpuinfo")) or platform.processor() or "unknown",
        cpu_cores=os.cpu_count() or 1,
        memory_gib=_memory_gib(),
        gpus=gpus,
    )
    return found, drivers


def cpu_model(cpuinfo: str) -> str:
    """Processor model from the text of /proc/cpuinfo: the first model name, or the part number if there is none (ARM)."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    if "model name" in fields:
        return " ".join(fields["model name"].split())
    if "CPU part" in fields:
        return f"implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return ""


def _memory_gib() -> int:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB)
    except (ValueError, OSError):
        return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _gpus(visible: str | None) -> tuple[tuple[Gpu, ...], dict[str, str]]:
    """GPUs and driver versions. `visible`: the value of CUDA_VISIBLE_DEVICES; empty: this run uses no GPU. A failing driver
    gives none: a record with a gap is better than no run."""
    if visible == "":
        return (), {}
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return (), {}
    wanted = None if visible is None else {item.strip() for item in visible.split(",")}
    gpus = []
    drivers = {}
    try:
        drivers["nvidia"] = _text(pynvml.nvmlSystemGetDriverVersion())
        drivers["cuda"] = str(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            if wanted is None or wanted & {str(index), _text(pynvml.nvmlDeviceGetUUID(handle))}:
                memory = round(int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) / GIB)
                gpus.append(Gpu(name=_text(pynvml.nvmlDeviceGetName(handle)), memory_gib=memory))
    except pynvml.NVMLError:
        pass
    finally:
        pynvml.nvmlShutdown()
    return tuple(gpus), drivers


def _text(value: str | bytes) -> str:
    """The value as text; older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value
