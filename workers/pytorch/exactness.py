"""What the last bit of a weight depends on besides the trial itself: noticed, recorded in each checkpoint, and said.

Within one machine and one set of versions a deterministic trial repeats bit for bit. What can still break that: an operation
without a deterministic kernel (GPU atomics), other versions, another kind of processor or GPU, another number of threads. The
file `exactness.json` of a checkpoint says where it was made and what was noticed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

EXACTNESS_FILE = "exactness.json"
HOST_THREADS = 4
"""CPU threads of a trial that trains on a GPU: fixed, because sums may depend on it; more help little beside a GPU."""
BREAKS_MAX = 50
"""Different sentences kept: each is an operation or a setting, and a model has few that matter."""
_NOT_DETERMINISTIC = re.compile(r"(\S+) does not have a deterministic implementation")


def prepare_torch(local_slots: int, deterministic: bool) -> torch.device:
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
    return torch.device("cuda", 0) if cuda else torch.device("cpu")


@cache
def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def surroundings(device: torch.device) -> dict[str, str]:
    """What results may depend on, by name."""
    found = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "processor": _processor(),
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


class Exactness:
    """One process's watch. `say`: tells the user a sentence; each is told once."""

    def __init__(self, exact: bool, device: torch.device, say: Callable[[str], None]) -> None:
        self.exact, self._device, self._say = exact, device, say
        self._surroundings: dict[str, str] | None = None
        self.breaks: list[str] = []
        self._show_warning: Any = None

    def watch(self) -> None:
        """Notices torch's warnings of operations that are not deterministic. Call `close` afterwards."""
        if not self.exact:
            return
        warnings.filterwarnings("always", message=".*does not have a deterministic implementation")
        self._show_warning = show = warnings.showwarning

        def notice(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None) -> None:
            found = _NOT_DETERMINISTIC.search(str(message))
            if found is None:
                show(message, category, filename, lineno, file, line)
            else:
                self.note(f"{found[1]} has no deterministic kernel here; first used at {filename}:{lineno}")

        warnings.showwarning = notice

    def close(self) -> None:
        if self._show_warning is not None:
            warnings.showwarning, self._show_warning = self._show_warning, None

    def note(self, sentence: str) -> None:
        if self._add(sentence):
            self._say(f"results may differ in the last bits when this trial is resumed or repeated: {sentence}")

    def _add(self, sentence: str) -> bool:
        if sentence.partition(";")[0] in {known.partition(";")[0] for known in self.breaks} or len(self.breaks) >= BREAKS_MAX:
            return False
        self.breaks.append(sentence)
        return True

    def check_settings(self) -> None:
        """What the user's code may have changed since."""
        if self.exact and not torch.are_deterministic_algorithms_enabled():
            self.note("deterministic kernels were switched off by the trial's code")
        if self.exact and self._device.type == "cuda" and torch.backends.cudnn.benchmark:
            self.note("cuDNN's benchmark mode was switched on by the trial's code")

    def record(self) -> bytes:
        """For a checkpoint. Cheap after the first call."""
        self.check_settings()
        self._surroundings = surroundings(self._device)
        return json.dumps(
            {"exact": self.exact, "surroundings": self._surroundings, "breaks": self.breaks}, indent=1, sort_keys=True
        ).encode()

    def resume(self, record: bytes) -> None:
        """Goes on with what a checkpoint recorded, and says what is different here."""
        saved = json.loads(record)
        for sentence in saved["breaks"]:
            self._add(sentence)
        if not self.exact:
            return
        if not saved["exact"]:
            self.note("it was trained without exact kernels before")
        here = surroundings(self._device)
        for name in sorted(saved["surroundings"].keys() | here.keys()):
            before, now = saved["surroundings"].get(name, "not known"), here.get(name, "not known")
            if before != now:
                self.note(f"{name} was {before} before this process, and is {now} now")
