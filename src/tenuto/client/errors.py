"""Errors that the client raises. `str(error)` is one sentence: what, why, what to do; the same that the command line shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ClientError(Exception):
    """Base of all errors of the client."""

    exit_code = 1
    """Exit code of the command line for this error."""


class Refused(ClientError):
    """The cluster answered, and the same request will not be answered otherwise: trying again is of no use."""

    status = 0
    """HTTP status; 0: the client itself refused before it asked."""
    word = ""
    """The cluster's own word for it, such as not_found or conflict; empty where it gave none."""
    path = ""
    """Path in the configuration or the request, such as `searcher.max_length`."""
    problems: Sequence[dict[str, Any]] = ()
    """All that is wrong with a configuration, each with `path`, `message` and `value`."""


class Away(ClientError):
    """The cluster does not answer, or says that it cannot now: the same request may be answered later."""

    retry_after_seconds: float | None = None


class Unreachable(Away):
    """Nothing answers at the cluster's address: the request was not sent."""


class Interrupted(Away):
    """The connection broke before the whole answer was there: what was asked for may have been carried out."""


class Failed(ClientError):
    """The cluster failed on the request: an error of ours, or of what stands between."""


class NotCompleted(ClientError):
    """The experiment that was waited for failed or was canceled."""

    exit_code = 2

    def __init__(self, message: str, experiment_id: int, state: str) -> None:
        super().__init__(message)
        self.experiment_id, self.state = experiment_id, state


class TimedOut(ClientError):
    """The awaited result did not come in time. The work goes on."""

    exit_code = 4
