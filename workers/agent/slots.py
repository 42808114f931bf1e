"""Slots that a node offers: its GPUs as NVML names them, or CPU shares if it has none."""

from __future__ import annotations

import logging
import os

from tenuto.schemas.events.agent import Slot

logger = logging.getLogger(__name__)


class NoSlots(RuntimeError):
    """The node's GPUs cannot be read."""


def find_slots(cpu_slots: int, *, gpus_required: bool = False) -> tuple[Slot, ...]:
    """Slots of this node. `cpu_slots`: number of slots if there is no GPU; 0: one per core that this process may use.

    Raises NoSlots if the driver exists but fails, or there is no GPU and `gpus_required`: offering CPU slots instead would
    silently train on the wrong device.
    """
    gpus = _gpus()
    if gpus:
        return gpus
    if gpus_required:
        raise NoSlots(
            "The node holds GPUs, but none can be seen in its image (NVML finds none): have utility in the image's"
            " NVIDIA_DRIVER_CAPABILITIES, or leave that variable unset, and check runtime_class of the pool."
        )
    count = cpu_slots or _cores()
    return tuple(Slot(slot_id=number, kind="cpu", device="cpu") for number in range(count))


def _gpus() -> tuple[Slot, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return ()
    except pynvml.NVMLError as error:
        raise NoSlots(f"The GPUs cannot be read: {error}. Check the driver with nvidia-smi.") from error
    try:
        return tuple(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        raise NoSlots(f"The GPUs cannot be read: {error}. Check the driver with nvidia-smi.") from error
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: object, index: int) -> Slot:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)  # type: ignore[attr-defined]
    return Slot(
        slot_id=index,
        kind="cuda",
        device=_text(pynvml.nvmlDeviceGetName(handle)),  # type: ignore[attr-defined]
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),  # type: ignore[attr-defined]
    )


def _text(value: str | bytes) -> str:
    """The value as text; older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def device_variables(slots: tuple[Slot, ...]) -> dict[str, str]:
    """Environment that shows a worker only its own devices."""
    if any(slot.kind == "cuda" for slot in slots):
        return {"CUDA_VISIBLE_DEVICES": ",".join(slot.uuid or str(slot.slot_id) for slot in slots)}
    # Several workers on one node must not each start a thread per core. A worker without slots has one thread and no GPU.
    threads = str(max(1, len(slots)))
    return {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
