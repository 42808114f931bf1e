"""Errors that the client raises. `str(error)` is one sentence: what, why, what to do; the same that the command line shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ClientError(Exception):
    """Base of all errors of the client."""

    exit_code = 1
    """Exit code of the command line for this error."""


class Refused(ClientError):
    """Refusal that does not change when the same request is sent again."""

    status = 0
    """HTTP status; 0: the client itself refused before it asked."""
    word = ""
    """Code of the error, such as not_found or conflict; empty if the cluster gave none."""
    path = ""
    """Path in the configuration or the request, such as `searcher.max_length`."""
    problems: Sequence[dict[str, Any]] = ()
    """All faults of a configuration, each with `path`, `message` and `value`."""


class Away(ClientError):
    """The cluster is unreachable, or says that it cannot answer now: the same request may succeed later."""

    retry_after_seconds: float | None = None
    """Pause before the next attempt that the cluster asks for; None: it names none."""


class Unreachable(Away):
    """Nothing answers at the cluster's address: the request was not sent."""


class Interrupted(Away):
    """The connection broke before the whole answer came: the request may have been carried out."""


class Failed(ClientError):
    """The cluster failed on the request: an error of Tenuto, or of a proxy between."""


class NotCompleted(ClientError):
    """The awaited experiment failed or was canceled."""

    exit_code = 2
    """Exit code of the command line for this error."""

    def __init__(self, message: str, experiment_id: int, state: str) -> None:
        super().__init__(message)
        self.experiment_id = experiment_id
        """Experiment that was awaited."""
        self.state = state
        """State in which it ended: failed or canceled."""


class TimedOut(ClientError):
    """The awaited result did not come in time. The work goes on."""

    exit_code = 4
    """Exit code of the command line for this error."""
