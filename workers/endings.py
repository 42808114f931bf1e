"""What all who tell a worker's end have in common: the rank itself, its supervisor, its agent. Imports nothing."""

ERROR_CHARACTERS_MAX = 8_000
"""Of the text for the user: the head of a long traceback says enough, and it goes into the record."""
STDERR_BYTES_READ = 16 * 1024
STDERR_LINES_SHOWN = 20
"""Its last lines, where a process left no error of its own."""
SIGNAL_EXIT_BASE = 128
"""Death by signal n is code 128 + n, as a shell counts."""
