"""secret set, ls, rm, rotate-key."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Small letters, digits, `_`, `.` and `-`; a configuration has it as `{secret: NAME}`.")]


@app.command("set")
def set_secret(context: typer.Context, name: Name) -> None:
    """Set a secret of yours, or replace it. Its value is asked for, or read from standard input; it is never an argument, which
    others on this machine could see."""
    if sys.stdin.isatty():
        value = typer.prompt(f"Value of {name}", hide_input=True)
    else:
        value = sys.stdin.read().rstrip("\r\n")
    if not value:
        raise CliError(f"There was no value on standard input; try `tenuto secret set {name} < file`.")
    client(context).put(f"/secrets/{name}", {"value": value})
    say(f"Secret {name} is set. A configuration names it: `environment: {{variables: {{VARIABLE: {{secret: {name}}}}}}}`.")


@app.command("ls")
def list_secrets(context: typer.Context, json: Json = False) -> None:
    """Show the names of your secrets."""
    from tenuto.cli.output import print_json, show_rows, when

    found = client(context).get("/secrets")
    if json:
        print_json(found)
        return
    show_rows(("secret", "set"), [(item["name"], when(item["updated_us"])) for item in found], "You have no secrets.")


@app.command("rm")
def remove(context: typer.Context, name: Name) -> None:
    """Remove a secret. Workers that run keep what they were given; those that start need it."""
    client(context).delete(f"/secrets/{name}")
    say(f"Secret {name} is removed.")


@app.command("rotate-key")
def rotate_key(context: typer.Context) -> None:
    """Seal all secrets and webhooks' targets with a new key, and forget the old one (for admins)."""
    done = client(context).post("/secrets/rotate-key")
    say(f"{done['secrets']} secrets are sealed with a new key. Keep a copy of the key's file: the old one opens none of them.")
    if done["unreadable"]:
        say(f"{done['unreadable']} were sealed with a key that was lost before, and cannot be read: set them anew.")
