"""Causes other than the trial itself that change the last bits of its weights: noticed, recorded in each checkpoint, and
reported.

Within one machine and one set of versions a deterministic trial repeats bit for bit. Remaining causes of breaks: an operation
without a deterministic kernel (GPU atomics), other versions, another kind of processor or GPU, another number of threads.
"""

from __future__ import annotations

import os
import platform
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tenuto.workers.checkpoints.exactness import EXACTNESS_FILE as EXACTNESS_FILE
from tenuto.workers.checkpoints.exactness import ExactnessRecord, processor

WORDS_MAX = 200
"""Most characters of a warning that are shown: its first sentence says which operation it is."""
HOST_THREADS = 4
"""CPU threads of a trial that trains on a GPU: fixed, because sums may depend on it; more help little beside a GPU."""
_OPERATION = re.compile(r"(\S+) does not have a deterministic implementation")
_WORDINGS = r"non-?\s?determinis|(?:not|n't)\s+(?:be\s+|have\s+an?\s+)?determinis|no\s+determinis"
"""Torch, its attention kernels, its compiler and libraries built on it each word this warning in another way."""


def not_deterministic(warning: str) -> str | None:
    """Words for a warning that an operation is not deterministic; None for another warning."""
    if (found := _OPERATION.search(warning)) is not None:
        return f"{found[1]} has no deterministic kernel here"
    if re.search(_WORDINGS, warning, re.IGNORECASE) is None:
        return None
    sentence = re.split(r"(?<=\w)\.\s|, but you set|\n", warning.strip(), maxsplit=1)[0].strip(" .")
    return " ".join(sentence.replace(";", ",").split())[:WORDS_MAX]


def prepare_torch(local_slots: int, deterministic: bool, local_rank: int = 0) -> torch.device:
    """Sets torch up for this process, and returns the device to train on. A CPU slot is one thread."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Only a warning where torch has no deterministic kernel: training is worth more than the last bit.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a debugging aid that costs time
        torch.backends.cudnn.benchmark = False
    cuda = torch.cuda.is_available()
    if "OMP_NUM_THREADS" not in os.environ and (deterministic or not cuda):  # which torch obeys, and which a user may set
        torch.set_num_threads(HOST_THREADS if cuda else local_slots)
    if not cuda:
        return torch.device("cpu")
    if local_rank:
        torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def surroundings(device: torch.device) -> dict[str, str]:
    """Properties that results may depend on, by name."""
    found = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "processor": processor(),
        "processor instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "float32 matrix products": torch.get_float32_matmul_precision(),
    }
    if device.type == "cuda":
        found |= {
            "GPU": torch.cuda.get_device_name(device),
            "CUDA": str(torch.version.cuda),
            "cuDNN": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "cuBLAS workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "not set"),
        }
    else:
        found["GPU"] = "none"
    return found


class Exactness(ExactnessRecord):
    """Breaks of a trial that torch computes."""

    def __init__(self, exact: bool, device: torch.device, say: Callable[[str], None]) -> None:
        super().__init__(exact, say)
        self._device = device
        self._show_warning: Any = None

    def surroundings(self) -> dict[str, str]:
        return surroundings(self._device)

    def watch(self) -> None:
        """Notices torch's warnings of operations that are not deterministic. Call `close` afterwards."""
        if not self.exact:
            return
        warnings.filterwarnings("always", message=f"(?s).*(?:{_WORDINGS})")
        self._show_warning = show = warnings.showwarning

        def notice(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None) -> None:
            what = not_deterministic(str(message))
            if what is None:
                show(message, category, filename, lineno, file, line)
            else:
                self.note(f"{what}; first used at {filename}:{lineno}")

        warnings.showwarning = notice

    def close(self) -> None:
        if self._show_warning is not None:
            warnings.showwarning, self._show_warning = self._show_warning, None

    def check_settings(self) -> None:
        """Notes settings that the user's code has changed."""
        if self.exact and not torch.are_deterministic_algorithms_enabled():
            self.note("deterministic kernels were switched off by the trial's code")
        if self.exact and self._device.type == "cuda" and torch.backends.cudnn.benchmark:
            self.note("cuDNN's benchmark mode was switched on by the trial's code")
