"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenuto.cli.client import Client, Target
from tenuto.cli.errors import CliError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _experiment_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise CliError(
            f"{text} is not the id of an experiment, which is a number from 1; `tenuto exp ls` lists those that there are."
        )
    return int(text)


ExperimentId = Annotated[int, typer.Argument(metavar="EXPERIMENT", help="Id of the experiment.", parser=_experiment_id)]
TrialId = Annotated[str, typer.Argument(metavar="TRIAL", help="Id of the trial, such as 3-7.")]
DataDir = Annotated[str | None, typer.Option(help="Directory of the cluster (default: TENUTO_DATA_DIRECTORY, else ~/.tenuto).")]


def client(context: typer.Context) -> Client:
    data_dir, url = context.obj or (None, None)
    return Client(Target.find(data_dir, url))


def data_dir_of(context: typer.Context, own: str | None) -> str | None:
    return own or (context.obj or (None, None))[0]


def items(value: Any) -> list[dict[str, Any]]:
    """A list, whether the server sent it bare or as the `items` of a page."""
    if isinstance(value, dict):
        value = value.get("items")
    if not isinstance(value, list):
        raise CliError("The cluster's answer cannot be read: is it of another version? `tenuto status` shows it.")
    return value
