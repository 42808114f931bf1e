"""A worker's end: how it is told, and constants, shared by the rank itself, its supervisor and its agent. Imports nothing of
ours."""

from typing import Literal

Ending = Literal[
    "finished", "preempted", "paused", "failed", "killed",
    "invalid_hyperparameters", "will_repeat", "followed", "infrastructure", "hung",
]  # fmt: skip
"""Ending of a run, as our harness or the supervisor of its gang reports it over the worker's channel. An exit code never says it:
any program may end with any code.

finished, preempted, paused: it left as it was told, or asks to be started again. failed: the user's code raised. killed: a rank
died by a signal. The others are causes of `tenuto.schemas.events.run.Cause`."""
ENDINGS: frozenset[str] = frozenset(Ending.__args__)  # type: ignore[attr-defined]
LEFT_IN_ORDER: frozenset[str] = frozenset({"finished", "preempted", "paused"})
ERROR_CHARACTERS_MAX = 8_000
"""Most characters of the error text for the user: the head of a long traceback is enough, and it is recorded."""
STDERR_BYTES_READ = 16 * 1024
STDERR_LINES_SHOWN = 20
"""Last lines of standard error that are shown if a process left no error of its own."""
SIGNAL_EXIT_BASE = 128
"""Exit code of a death by signal n is 128 + n, as in a shell."""
EXITED, KILLED, REFUSED = "exited", "killed", "refused"
"""Words behind the exit code in a run's exit file, from the parent of its worker: it ended by itself, died by a signal, or was
never started, because the environment cannot run it."""
