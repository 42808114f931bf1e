"""State of a process that code in it may change for all code: as it was noted before a run, it is given back after it.

Each function notes one part and returns another one, which gives that part back and returns the reason why it cannot: the process
is then not used again. Empty: it is as it was.
"""

from __future__ import annotations

import builtins
import contextlib
import copyreg
import ctypes
import faulthandler
import gc
import importlib
import linecache
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import typing
import warnings
from collections.abc import Callable
from typing import Any

GiveBack = Callable[[], str]


def note() -> list[GiveBack]:
    """Notes all parts. Call what it returns in its order."""
    return [part() for part in (_limits, _streams, _system, _signals, _logging, _warnings, _collector)]


def _limits() -> GiveBack:
    """Limits and properties that the kernel keeps: some cannot be raised again."""

    def now() -> tuple[Any, ...]:
        names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
        return (
            tuple(resource.getrlimit(getattr(resource, name)) for name in names),
            os.getpriority(os.PRIO_PROCESS, 0),
            os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else (),
            os.getresuid() if hasattr(os, "getresuid") else (),
            os.getpgrp(),
            os.getsid(0),
        )

    before = now()
    return lambda: "" if now() == before else "limits, priority, processors or the group of the process were changed"


def _streams() -> GiveBack:
    names = ("stdin", "stdout", "stderr")
    before = {name: getattr(sys, name) for name in names}
    ways = {name: (stream.encoding, stream.errors, stream.line_buffering) for name, stream in before.items()}

    def give_back() -> str:
        flush()
        for name in names:
            setattr(sys, name, before[name])
        if any(stream is None or stream.closed for stream in before.values()):
            return "standard output was closed"
        for name, stream in before.items():
            encoding, errors, by_lines = ways[name]
            if (stream.encoding, stream.errors, stream.line_buffering, stream.write_through) != (*ways[name], False):
                stream.reconfigure(encoding=encoding, errors=errors, line_buffering=by_lines, write_through=False)
        return ""

    return give_back


def flush() -> None:
    """Writes what Python and C libraries hold of the output: later it would be the next run's."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user's own object
            stream.flush()
    ctypes.CDLL(None).fflush(None)


_OF_SYS = (
    "excepthook", "unraisablehook", "displayhook", "breakpointhook", "dont_write_bytecode", "pycache_prefix", "tracebacklimit",
)  # fmt: skip


def _system() -> GiveBack:
    """The interpreter: paths, hooks and limits of `sys`, built-in names, directory, mask of new files, locale."""
    before = {name: getattr(sys, name) for name in _OF_SYS if hasattr(sys, name)}
    path, finders = sys.path[:], {name: list(getattr(sys, name)) for name in ("meta_path", "path_hooks")}
    recursion, switch, digits = sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()
    names_built_in, pickled, hook = vars(builtins), dict(copyreg.dispatch_table), threading.excepthook
    own = dict(names_built_in)
    environment, zone = os.environ, os.environ.get("TZ")
    seconds_of_sockets = socket.getdefaulttimeout()
    umask, place, stack = _umask(), locale.setlocale(locale.LC_ALL), threading.stack_size()

    def give_back() -> str:
        for name in _OF_SYS:
            if name in before:
                setattr(sys, name, before[name])
            elif hasattr(sys, name):
                delattr(sys, name)
        sys.path[:] = path
        for name, values in finders.items():
            _give_back_finders(getattr(sys, name), values)
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        sys.setrecursionlimit(recursion)
        sys.setswitchinterval(switch)
        sys.set_int_max_str_digits(digits)
        socket.setdefaulttimeout(seconds_of_sockets)
        if "asyncio" in sys.modules:  # its current loop, which the run has closed
            sys.modules["asyncio"].set_event_loop_policy(None)
        sys.settrace(None)
        sys.setprofile(None)
        threading.settrace(None)  # type: ignore[arg-type]
        threading.setprofile(None)
        threading.excepthook, _ = hook, threading.stack_size(stack)
        for name in [name for name in names_built_in if name not in own]:
            del names_built_in[name]
        names_built_in.update(own)
        copyreg.dispatch_table.update(pickled)  # what libraries have added since stays, as they are not imported again
        os.environ = environment  # type: ignore[misc]  # noqa: B003 - its content is the next run's
        if os.environ.get("TZ") != zone:
            os.environ.pop("TZ", None)
            os.environ |= {} if zone is None else {"TZ": zone}
            time.tzset()
        os.umask(umask)
        os.chdir("/")  # the model directory may be removed
        locale.setlocale(locale.LC_ALL, place)
        linecache.clearcache()
        importlib.invalidate_caches()
        for clear in typing._cleanups:  # type: ignore[attr-defined]  # they hold the user's classes
            clear()
        return ""

    return give_back


def _give_back_finders(now: list[Any], before: list[Any]) -> None:
    """Leaves those that were there, and those of libraries: these are not imported again, and may need them."""
    own = {id(finder) for finder in before}
    added = [finder for finder in now if id(finder) not in own and _module_of(finder) in sys.modules.keys() - {"builtins"}]
    first = bool(added) and now[0] is added[0]  # one that is asked before all others
    now[:] = [*added, *before] if first else [*before, *added]


def _module_of(finder: Any) -> str:
    return str(getattr(finder, "__module__", None) or type(finder).__module__)


def _umask() -> int:
    os.umask(mask := os.umask(0o022))
    return mask


def _signals() -> GiveBack:
    numbers = sorted(signal.valid_signals())
    before = {number: signal.getsignal(number) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    timers = [getattr(signal, name) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")]

    def give_back() -> str:
        for timer in timers:
            signal.setitimer(timer, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return ""

    return give_back


def _logging() -> GiveBack:
    """Loggers. Those that are new stay, as modules hold them, and are as new ones are; those of libraries that were imported
    meanwhile stay as they are."""
    manager, root = logging.Logger.manager, logging.root
    before = {name: _settings(logger) for name, logger in manager.loggerDict.items() if isinstance(logger, logging.Logger)}
    of_root, handlers, disabled = _settings(root), logging._handlerList[:], manager.disable  # type: ignore[attr-defined]
    kind, factory, raises = logging.getLoggerClass(), logging.getLogRecordFactory(), logging.raiseExceptions
    names, last = dict(logging._nameToLevel), logging.lastResort
    levels = dict(logging._levelToName)

    def give_back() -> str:
        logging.captureWarnings(False)
        for name, logger in manager.loggerDict.items():
            if isinstance(logger, logging.Logger) and (name in before or name.partition(".")[0] not in sys.modules):
                _set(logger, before.get(name, _NEW))
        _set(root, of_root)
        for reference in logging._handlerList[:]:  # type: ignore[attr-defined]
            if reference not in handlers and (handler := reference()) is not None:
                with contextlib.suppress(Exception):  # the user's own class
                    handler.close()
        logging._handlerList[:] = handlers  # type: ignore[attr-defined]
        manager.disable, logging.raiseExceptions, logging.lastResort = disabled, raises, last
        logging.setLoggerClass(kind)
        logging.setLogRecordFactory(factory)
        for known, given in ((logging._nameToLevel, names), (logging._levelToName, levels)):
            known.clear()
            known.update(given)  # type: ignore[arg-type]
        manager._clear_cache()  # type: ignore[attr-defined]
        return ""

    return give_back


_Settings = tuple[int, bool, bool, tuple[Any, ...], tuple[Any, ...]]
_NEW: _Settings = (logging.NOTSET, True, False, (), ())


def _settings(logger: logging.Logger) -> _Settings:
    return logger.level, logger.propagate, logger.disabled, tuple(logger.handlers), tuple(logger.filters)


def _set(logger: logging.Logger, settings: _Settings) -> None:
    logger.level, logger.propagate, logger.disabled, handlers, filters = settings
    logger.handlers[:], logger.filters[:] = handlers, filters


def _warnings() -> GiveBack:
    filters, show, format_warning = warnings.filters[:], warnings.showwarning, warnings.formatwarning

    def give_back() -> str:
        warnings.filters[:] = filters  # type: ignore[index]
        warnings.showwarning, warnings.formatwarning = show, format_warning
        warnings.onceregistry.clear()  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]  # modules forget which warnings they have shown
        return ""

    return give_back


def _collector() -> GiveBack:
    thresholds, debug, callbacks, on = gc.get_threshold(), gc.get_debug(), gc.callbacks[:], gc.isenabled()

    def give_back() -> str:
        gc.set_threshold(*thresholds)
        gc.set_debug(debug)
        gc.callbacks[:] = callbacks
        gc.enable() if on else gc.disable()
        return ""

    return give_back
