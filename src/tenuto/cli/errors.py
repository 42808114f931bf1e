"""Errors that end a command early."""

from __future__ import annotations

from tenuto.client.errors import ClientError


class CliError(ClientError):
    """`str(error)` goes to standard error as it is: what, why, what to do. `exit_code` is the exit status."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
