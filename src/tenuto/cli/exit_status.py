"""End and exit status of commands that wait for an experiment."""

from __future__ import annotations

from typing import Any

from tenuto.cli.errors import CliError
from tenuto.cli.say import say
from tenuto.client.errors import TimedOut

EXIT_NOT_COMPLETED = 2
"""The experiment that was waited for failed or was canceled."""


def follow_to_end(rest: Any, experiment: int, *, quiet: bool, timeout_seconds: float | None = None) -> None:
    """Raises CliError where it ends in another way than by completing, TimedOut where it does not end in time."""
    from tenuto.cli.follow import follow

    try:
        story = follow(rest, experiment, quiet=quiet, timeout_seconds=timeout_seconds)
    except TimedOut:
        raise TimedOut(f"Experiment {experiment} has not ended within {timeout_seconds:g} s; it goes on.") from None
    except KeyboardInterrupt:
        say(f"\nExperiment {experiment} goes on; `tenuto exp wait {experiment} --follow` shows it again.")
        raise
    if story.state != "completed":
        from tenuto.cli.output import cut

        raise CliError(
            f"Experiment {experiment} {story.state}{': ' + cut(story.error) if story.error else ''}", EXIT_NOT_COMPLETED
        )
