"""Facts of PyTorch and its devices as JSON on standard output: `python -m tenuto.checking.torch_probe`. In a process of its own,
because a driver that does not fit may end or stop the process that asks it."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

SIDE = 256
"""Rows of the matrices that are multiplied: enough for every core of a device, and done in a millisecond."""


def main() -> int:
    try:
        import torch
    except ModuleNotFoundError as error:
        missing = error.name == "torch"
        print(json.dumps({"missing": missing, "error": "" if missing else str(error)}))
        return 0
    except Exception as error:  # a library of it does not load
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 0
    print(json.dumps(_facts(torch)))
    return 0


def _facts(torch: Any) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        available = bool(torch.cuda.is_available())
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "cuda_available": available,
        "cuda_error": str(told[0].message).partition("\n")[0] if told else "",
        "architectures": list(torch.cuda.get_arch_list()) if available else [],
        "devices": [_device(torch, number) for number in range(torch.cuda.device_count())] if available else [],
    }


def _device(torch: Any, number: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(number)
    return {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "memory_bytes": properties.total_memory,
        "wrong": _wrong(torch, number),
    }


def _wrong(torch: Any, number: int) -> str:
    """Sentence if the device multiplies whole numbers wrongly, which float32 represents exactly, or cannot; else empty."""
    matrix = (torch.arange(SIDE * SIDE) % 7).float().reshape(SIDE, SIDE)
    try:
        product = (matrix.to(f"cuda:{number}") @ matrix.T.to(f"cuda:{number}")).cpu()
    except Exception as error:
        return f"a multiplication fails ({str(error).partition(chr(10))[0]})"
    return "" if torch.equal(product, matrix @ matrix.T) else "a multiplication gives another result than the CPU"


if __name__ == "__main__":
    sys.exit(main())
