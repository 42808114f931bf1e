"""Options that many commands share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.errors import UsageError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from tenuto.client.blocking.client import Client
    from tenuto.client.target import Target

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _experiment_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise UsageError(
            f"{text} is not the id of an experiment, which is a number from 1; `tenuto exp ls` lists those that there are."
        )
    return int(text)


ExperimentId = Annotated[int, typer.Argument(metavar="EXPERIMENT", help="Id of the experiment.", parser=_experiment_id)]
TrialId = Annotated[str, typer.Argument(metavar="TRIAL", help="Id of the trial, such as 3-7.")]
At = Annotated[
    int | None, typer.Option("--at", min=1, metavar="POSITION", help="As it was after this position of the log; without it, now.")
]
DataDir = Annotated[str | None, typer.Option(help="Directory of the cluster (default: TENUTO_DATA_DIRECTORY, else ~/.tenuto).")]


def client(context: typer.Context) -> Client:
    from tenuto.client.target import Target

    data_dir, url = context.obj or (None, None)
    return talking_to(Target.find(data_dir, url))


def talking_to(target: Target) -> Client:
    """A command says at once what is wrong, and one that waits says that it does."""
    from tenuto.client.blocking.client import Client

    return Client(target, patience_seconds=0.0, notice=notice)


def notice(text: str) -> None:
    say(text, file=sys.stderr, flush=True)


def data_dir_of(context: typer.Context, own: str | None) -> str | None:
    return own or (context.obj or (None, None))[0]
