"""What a run of the suite does to its machine, and processes that compute beside it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_SECONDS = 1.0
"""Between two looks at memory: a peak of less is not what a machine runs out of."""
COMPUTE = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))\n"
"""Ends with its parent, however that ends."""


@dataclass
class Use:
    """Of the whole machine while something ran."""

    idle_share: float = 0.0
    """Of all processors' time, 0 to 1."""
    memory_bytes_max: int = 0
    """Most memory in use beyond what was in use at the beginning."""
    _ticks: tuple[int, int] = field(default=(0, 0), repr=False)


@contextlib.contextmanager
def measured() -> Iterator[Use]:
    """Use of the machine inside the block; whole when it ends."""
    use, ended, before = Use(), threading.Event(), _memory_bytes_used()
    idle, total = _ticks()

    def watch() -> None:
        while True:
            use.memory_bytes_max = max(use.memory_bytes_max, _memory_bytes_used() - before)
            if ended.wait(SAMPLE_SECONDS):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield use
    finally:
        ended.set()
        thread.join()
        idle_after, total_after = _ticks()
        use.idle_share = (idle_after - idle) / max(total_after - total, 1)


@contextlib.contextmanager
def computing(count: int) -> Iterator[None]:
    """That many processes compute meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-I", "-S", "-c", COMPUTE]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _ticks() -> tuple[int, int]:
    """Idle and total time of all processors, in ticks. proc(5): user nice system idle iowait irq softirq steal."""
    values = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return values[3] + values[4], sum(values)


def _memory_bytes_used() -> int:
    lines = [line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines()]
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in lines}
    return (kilobytes["MemTotal"] - kilobytes["MemAvailable"]) * 1024
