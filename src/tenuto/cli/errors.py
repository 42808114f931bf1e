"""What ends a command early."""

from __future__ import annotations


class CliError(Exception):
    """`str(error)` goes to standard error as it is: what, why, what to do. `code` is the exit status."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
