"""Constants about a worker's end, shared by the rank itself, its supervisor and its agent. Imports nothing."""

ERROR_CHARACTERS_MAX = 8_000
"""Most characters of the error text for the user: the head of a long traceback is enough, and it is recorded."""
STDERR_BYTES_READ = 16 * 1024
STDERR_LINES_SHOWN = 20
"""Last lines of standard error that are shown if a process left no error of its own."""
SIGNAL_EXIT_BASE = 128
"""Exit code of a death by signal n is 128 + n, as in a shell."""
ORDERLY = frozenset({0, 80, 81})
"""Exit codes of workers that left as they were told."""
