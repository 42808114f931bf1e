"""The supervisor as a process of its own, which outlives the command that started it (`tenuto up --detach`)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import signal
import sys

from tenuto.embedded.files import Layout
from tenuto.embedded.options import Options
from tenuto.embedded.process import ServerError
from tenuto.embedded.supervisor import supervise
from tenuto.kernel.clock import SystemClock

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """The detached supervisor. Until the cluster is ready it writes its progress to the descriptor `--progress-fd`, one line
    each; the last is `ready URL` or `error SENTENCE`."""
    parser = argparse.ArgumentParser(prog="tenuto.embedded.detached")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--cpu-slots", type=int)
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--worker-user", default="")
    parser.add_argument("--listen", default="")
    parser.add_argument("--progress-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, help="process with which the cluster stops")
    arguments = parser.parse_args()
    if arguments.parent is not None and not _stop_with(arguments.parent):
        return 1
    progress = os.fdopen(arguments.progress_fd, "w", buffering=1)

    def tell(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            progress.write(line + "\n")

    def report(line: str) -> None:
        print(f"{SystemClock().now_us() / 1e6:.3f} {line}", flush=True)
        tell(f"progress {line}")

    def ready(url: str) -> None:
        tell(f"ready {url}")
        progress.close()

    options = Options(
        Layout.of(arguments.data_dir),
        arguments.port,
        arguments.cpu_slots,
        arguments.agents,
        arguments.worker_user,
        arguments.listen,
    )
    try:
        asyncio.run(supervise(options, report, ready))
    except ServerError as error:
        tell(f"error {error}")
        return 1
    return 0


def _stop_with(parent: int) -> bool:
    """Lets this process be told to stop when its parent ends. False: it has ended already."""
    with contextlib.suppress(AttributeError, OSError):  # no Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


if __name__ == "__main__":
    sys.exit(main())
