"""Measurement of the facts that are judged (machine.py)."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tenuto.checking.machine import DriverFacts, MachineFacts, TorchDevice, TorchFacts
from tenuto.embedded.cluster import REST_PORT_DEFAULT
from tenuto.embedded.files import Layout, is_up
from tenuto.embedded.process import port_is_free

TORCH_SECONDS_MAX = 120.0
"""Longest time for PyTorch to be imported and to reach all devices: from a cold network disk it takes half a minute."""
FSYNCS = 9
_TIME_ERROR = 5
"""Return value of ntp_adjtime(2) for a clock that nothing keeps right."""
_SHARED_MEMORY = Path("/dev/shm")
_MOUNTS = Path("/proc/self/mounts")


def machine_facts(layout: Layout) -> MachineFacts:
    """Facts of this machine, for a cluster whose files would be at `layout`."""
    import psutil

    error, nearest = _writable(layout.root)
    seconds = None
    if not error:
        try:
            seconds = _fsync_seconds(nearest)
        except OSError as problem:
            error = f"nothing can be written to {nearest}: {problem.strerror}"
    port, kept = _port(layout)
    return MachineFacts(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        data_directory=str(layout.root),
        directory_error=error,
        free_bytes=0 if error else psutil.disk_usage(str(nearest)).free,
        file_system=_file_system(nearest),
        fsync_seconds=seconds,
        shared_memory_bytes=psutil.disk_usage(str(_SHARED_MEMORY)).total if _SHARED_MEMORY.is_dir() else None,
        open_files_max=_open_files_max(),
        clock_synchronized=_clock_synchronized(),
        port=port,
        port_kept=kept,
        port_taken=not _is_free(port),
        own_cluster=is_up(layout),
        root=os.geteuid() == 0,
    )


def driver_facts() -> DriverFacts:
    """Facts of NVIDIA's driver; empty ones where there is none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return DriverFacts()
    except pynvml.NVMLError as error:
        return DriverFacts(error=f"the driver does not answer: {error}")
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return DriverFacts(
            version=_text(pynvml.nvmlSystemGetDriverVersion()),
            cuda=(cuda // 1_000, cuda % 1_000 // 10),
            devices=tuple(_text(pynvml.nvmlDeviceGetName(device)) for device in devices),
        )
    except pynvml.NVMLError as error:
        return DriverFacts(error=f"the driver does not answer: {error}")
    finally:
        pynvml.nvmlShutdown()


def torch_facts() -> TorchFacts:
    """Facts of PyTorch, asked in a process of its own."""
    command = [sys.executable, "-P", "-m", "tenuto.checking.torch_probe"]
    # All devices, in the order of slots: workers get variables of their own.
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TORCH_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        return TorchFacts(error=f"it gave no answer within {TORCH_SECONDS_MAX:.0f} s")
    try:
        told = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().rpartition("\n")[2]
        return TorchFacts(error=f"its process ended with {done.returncode}{f' ({last})' if last else ''}")
    devices = tuple(TorchDevice(**{**item, "capability": tuple(item["capability"])}) for item in told.pop("devices", ()))
    return TorchFacts(**{**told, "architectures": tuple(told.get("architectures", ())), "devices": devices})


def _is_free(port: int) -> bool:
    try:
        return port_is_free(port)
    except OSError:
        return False


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _writable(directory: Path) -> tuple[str, Path]:
    """(sentence if nothing can be written there, else empty; the nearest directory that exists)."""
    nearest = directory
    try:
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        if not nearest.is_dir():
            return f"{nearest} is no directory", nearest
    except OSError as error:
        return f"{directory} cannot be looked at: {error.strerror}", nearest.parent
    return ("" if os.access(nearest, os.W_OK | os.X_OK) else f"nothing can be written to {nearest}"), nearest


def _file_system(directory: Path) -> str:
    """Type of the file system that holds `directory`; empty where the system does not tell."""
    try:
        mounts = [line.split(" ") for line in _MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    path = str(directory.resolve())
    held = [(len(where), kind) for _, where, kind, *_ in mounts if where == "/" or path == where or path.startswith(where + "/")]
    # A later mount on the same directory hides the one before.
    return max(enumerate(held), key=lambda item: (item[1][0], item[0]))[1][1] if held else ""


def _fsync_seconds(directory: Path) -> float:
    """Raises OSError."""
    probe = directory / f".tenuto-check.{os.getpid()}"
    times = []
    try:
        with probe.open("wb", buffering=0) as file:
            for _ in range(FSYNCS):
                begun = time.perf_counter()
                file.write(b"x" * 4_096)
                os.fsync(file.fileno())
                times.append(time.perf_counter() - begun)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return statistics.median(times)


def _open_files_max() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _clock_synchronized() -> bool | None:
    """Answer of ntp_adjtime(2) with nothing to adjust; None where there is no such call."""
    try:
        adjust = ctypes.CDLL(None).ntp_adjtime
    except (AttributeError, OSError):
        return None
    state = adjust(ctypes.create_string_buffer(512))  # struct timex: 208 bytes on Linux; all zero asks only
    return None if state < 0 else state != _TIME_ERROR


def _port(layout: Layout) -> tuple[int, bool]:
    """Port that a cluster would have, and whether it had the same before, so that it takes no other."""
    try:
        return int(layout.rest_port.read_text()), True
    except (OSError, ValueError):
        return REST_PORT_DEFAULT, False
