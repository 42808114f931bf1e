"""Stops the cluster of this machine, from another process than its supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

import psutil

from tenuto.embedded.cluster import stop_everything
from tenuto.embedded.files import Layout, Lock, read_state
from tenuto.embedded.process import ServerError, wait_gone

STOP_SECONDS_MAX = 120.0
"""Stopping waits for each process in turn; this is more than the sum of all its limits."""
_POLL_SECONDS = 0.05


def stop_cluster(layout: Layout) -> bool:
    """Stops the cluster in `layout`, and whatever a killed supervisor left. False: there was nothing to stop. Raises
    ServerError."""
    if not layout.lock.exists():
        return False
    lock = Lock(layout.lock)
    try:
        running = not lock.acquire()
    except OSError as error:
        raise ServerError(f"Cannot stop the cluster in {layout.root}: {error.strerror} ({layout.lock}).") from error
    if running:
        _end_supervisor(layout, lock)
    left = asyncio.run(stop_everything(layout))
    lock.release()
    return running or bool(left)


def _end_supervisor(layout: Layout, lock: Lock) -> None:
    """Raises ServerError."""
    holder = lock.holder() or getattr(read_state(layout), "supervisor_pid", None)
    if holder is None:
        raise ServerError(f"The cluster in {layout.root} is just starting: try again in a moment.")
    with suppress(ProcessLookupError):
        os.kill(holder, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while not lock.acquire():
        if time.monotonic() > deadline:
            raise ServerError(f"The supervisor (process {holder}) did not stop in {STOP_SECONDS_MAX:.0f} s.")
        time.sleep(_POLL_SECONDS)
    with suppress(psutil.NoSuchProcess):
        wait_gone([psutil.Process(holder)], STOP_SECONDS_MAX)
