"""How a forked program runs to its end and leaves. Scripts that import nothing of the tests run this file
(`runpy.run_path`), so it imports nothing of them either, and none of their programs finds it as a module."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn


def to_its_end(run: Callable[..., object], *arguments: Any) -> int:
    """Its exit status, as the interpreter gives it."""
    try:
        run(*arguments)
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        if end.code is not None:
            print(end.code, file=sys.stderr)
        return int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def leave(status: int) -> NoReturn:
    """Ends this process after what its threads and its libraries do at the end, without taking apart all that was imported: that
    takes as long as most commands, and after torch one or two seconds of a processor."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
