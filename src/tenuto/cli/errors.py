"""Errors that end a command early."""

from __future__ import annotations

from tenuto.client.errors import ClientError

EXIT_USAGE = 64
"""EX_USAGE of sysexits.h, as of the agent: 2, which others take, says of `tenuto exp wait` that the experiment failed."""


class CliError(ClientError):
    """`str(error)` goes to standard error as it is: what, why, what to do. `exit_code` is the exit status."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CliError):
    """The command line itself is wrong: nothing was asked of the cluster, and nothing failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)
