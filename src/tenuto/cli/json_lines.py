"""`--json` for every command, and for errors. A command that shows a thing or a list prints it as one JSON value. Each other
prints the sentences that it has for people as JSON lines: {"message": "..."}. An error is one line on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tenuto.cli import say

OPTION = "--json"
UsageProblem: Any = typer.BadParameter.__base__
Problem: Any = UsageProblem.__base__
"""Base class of all errors of typer, and above it that of wrong command lines: classes of the click that typer carries."""


def wanted(arguments: list[str]) -> bool:
    """True if errors are to be JSON, too; works also for a wrong command line, from which no options can be parsed."""
    before, _, _ = (" ".join(arguments)).partition(" -- ")
    return OPTION in before.split(" ")


def add_to(command: Any) -> None:
    """Gives the option to each command below that has none of its own."""
    for item in getattr(command, "commands", {}).values():
        add_to(item)
    if hasattr(command, "commands") or any(OPTION in item.opts for item in command.params):
        return
    command.params.append(_option())


def _option() -> Any:
    """The option, made by typer from a function."""
    sample = typer.Typer(add_completion=False)

    @sample.command()
    def one(
        json_lines: Annotated[
            bool,
            typer.Option(
                OPTION,
                callback=_as_lines,
                is_eager=True,
                expose_value=False,
                help='Print each sentence as a JSON line, {"message": ...}.',
            ),
        ] = False,
    ) -> None: ...

    return typer.main.get_command(sample).params[0]


def _as_lines(given: bool) -> None:
    if given:
        say.as_json_lines = True


def error_line(message: str, exit_code: int, **more: Any) -> str:
    """`more`: the cluster's word for it, and where in the request, if there are any."""
    return say.json_text(_error(message, exit_code, more))


def _error(message: str, exit_code: int, more: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in more.items() if value}
    return {"error": {"message": message, "exit_code": exit_code, **known}}


def tell(message: str, exit_code: int, **more: Any) -> None:
    print(say.json_text(_error(message, exit_code, more)), file=sys.stderr)
