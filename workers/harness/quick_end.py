"""The quick end of a process that trains: without tearing down the interpreter, which with all of torch takes a second or two."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys


class QuickEnd:
    """Ends the process once exit handlers have run. Made before any of the user's code is loaded: the first exit handler to be
    registered is the last to run."""

    def __init__(self, code: int | None = None) -> None:
        """`code`: with which the process ends, and may be set later; None: it ends as usual."""
        self.code = code
        atexit.register(self.end)

    def end(self) -> None:
        if self.code is None:
            return
        with contextlib.suppress(OSError, ValueError):  # a full disk, or streams that the user's code closed
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(self.code)
