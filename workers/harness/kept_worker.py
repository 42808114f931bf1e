"""A worker that stays for the next run of its experiment: it gives back the state of its process, offers itself to its leader
(run_leader.py), and begins the run that it is given.

It is offered only where nothing is left of the run that was: no thread, file or process, none of the user's code, no setting.
Where that is not so, the trial's log says why, and the next run has a process of its own.
"""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from tenuto.workers.harness import frameworks, process_state
from tenuto.workers.harness.fork_orders import begin_run, read_line, take_order
from tenuto.workers.harness.leftovers import Leftovers
from tenuto.workers.harness.rehearsal import threads_ended
from tenuto.workers.harness.users_code import UsersCode, still_held

CLEARED = {
    "tenuto.workers.core_api.session": "_current",
    "tenuto.workers.determined.facts": "_current",
    "tenuto.workers.harness.notifier": "_current",
    "tenuto.workers.record.recorder": "_current",
}
"""Modules of ours, and their variables that hold an object of the present run."""
CACHES = {
    "tenuto.workers.pytorch.own_iteration": ("_fed_class",),
    "tenuto.workers.pytorch.own_state": ("_is_torchs_alone", "_set_by_torch", "_set_in"),
    "tenuto.workers.user_state.generators": ("_is_users_file",),
    "tenuto.workers.user_state.places": ("_place_in_module", "_place_in"),
}
"""Modules of ours, and their functions that remember results by the user's classes."""

OTHERS = ("accelerate", "horovod", "jax", "keras", "lightning", "pytorch_lightning", "ray", "transformers")
"""Libraries that hold state of a training in their modules, which nothing here gives back."""

GIVE_BACK_SECONDS_MAX = 30.0
"""Longest time in which state is given back, as for exit handlers: usually a tenth of a second. Others want the slots."""


class KeptWorker:
    """The worker's side. Made before any of the user's code is loaded."""

    def __init__(self, link: socket.socket, environment: Mapping[str, str], reseed: Callable[[], None]) -> None:
        """`link`: to the leader. `environment`: variables that the process was started with. `reseed`: seeds all generators from
        chance."""
        self._link, self._environment, self._reseed = link, environment, reseed

    def wait_go(self) -> None:
        if not self._link.recv(1):
            os._exit(0)

    def note(self) -> None:
        """Notes the state that is given back after each run. Called once everything of ours is prepared."""
        self._counted = threads_ended()  # one that is about to end would be counted, and later hide one of the user's
        self._code, self._left = UsersCode(), Leftovers()
        self._parts = process_state.note()
        self._noted = {framework.library for framework in frameworks.imported()}
        self._parts += [framework.note_state() for framework in frameworks.imported()]

    def run(self, run: Callable[[], int]) -> int:
        """Calls `run` with context variables of its own, such as the precision of decimal numbers."""
        return contextvars.copy_context().run(run)

    def next(self, code: int, say: Callable[[str], None]) -> bool:
        """Waits for the next run after one that ended with this exit code. False: there is none for this process."""
        with _deadline(code):
            try:
                # Threads and functions for the end still run where this process ends now: for them, all is as they left it.
                why = self._left.uses_helpers()
                for framework in frameworks.imported() if not why else ():
                    framework.end_helpers()
                why = why or self._left.that_runs() or self._give_back()
            except Exception as error:  # of an object of the user's: what it has left undone is not known
                why = f"{type(error).__name__}: {error}"
            if why:
                say(f"this process is not used for the next trial: {why}")
                return False
            process_state.flush()  # once more: an object of the user's may have printed at its end
        try:
            self._link.sendall(b"%d\n" % code)
            line = read_line(self._link)
        except OSError:
            return False
        if not line:
            return False
        try:
            begin_run(take_order(line, self._link), self._environment)
            self._reseed()
        except BaseException:  # the code of the run before must not become this one's
            traceback.print_exc()
            os._exit(1)
        return True

    def _give_back(self) -> str:
        """Gives back all state. Returns the reason why the process cannot be used again, or an empty string."""
        if not self._counted:
            return "threads still ended when its first run began, so that those of the run could not be told from them"
        if why := self._code.unforgettable():
            return why
        for module, name in CLEARED.items():
            if module in sys.modules:
                setattr(import_module(module), name, None)
        for module, names in CACHES.items():
            for name in names if module in sys.modules else ():
                getattr(import_module(module), name).cache_clear()
        libraries = [framework.library for framework in frameworks.imported()]
        libraries += [name for name in OTHERS if name in sys.modules]
        if unknown := next((name for name in libraries if name not in self._noted), None):
            return f"it has imported {unknown}, whose state cannot be given back"
        held = self._code.forget()
        for give_back in self._parts:
            if why := give_back():
                return why
        return still_held(held) or self._left.found()


@contextlib.contextmanager
def _deadline(code: int) -> Iterator[None]:
    """Ends the process with this code if what is inside takes too long: an object of the user's may wait for ever at its end, and
    a GPU for a kernel. A thread, which no signal and no setting of the user's stops."""
    begun, done = _thread.allocate_lock(), _thread.allocate_lock()
    begun.acquire()
    done.acquire()

    def wait() -> None:
        begun.release()
        if not done.acquire(timeout=GIVE_BACK_SECONDS_MAX):
            os.write(2, b"tenuto: this process is not used for the next trial: its state could not be given back in time\n")
            os._exit(code)

    _thread.start_new_thread(wait, ())
    begun.acquire()  # Python counts a thread once it runs, and threads are counted inside
    try:
        yield
    finally:
        done.release()
