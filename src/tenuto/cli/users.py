"""user create, ls, rm, token; password and whoami are in sign_in."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenuto.cli import tokens
from tenuto.cli.common import Json, client
from tenuto.cli.say import say
from tenuto.cli.sign_in import link, password, whoami
from tenuto.cli.tokens import Days

app = typer.Typer(no_args_is_help=True)
app.add_typer(tokens.app, name="token", help="Tokens of a user: one for each machine or program.")
app.command()(link)
app.command()(password)
app.command()(whoami)
Name = Annotated[str, typer.Argument(help="Small letters, digits, `_`, `.` and `-`; a letter first.")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May change everything, and not only its own experiments.")] = False,
    service: Annotated[bool, typer.Option("--service", help="An account for programs: it has tokens and no password.")] = False,
    owner: Annotated[str, typer.Option("--owner", help="User who keeps the service account's tokens, beside admins.")] = "",
    days: Days = None,
    json: Json = False,
) -> None:
    """Make a user, and print its token: this once, because only its hash is kept."""
    from tenuto.cli.output import print_json

    body = {"name": name, "admin": admin, "service": service, "owner": owner, "expires_days": days}
    made = client(context).post("/users", body)
    if json:
        print_json(made)
        return
    say(f"User {name} is created.")
    tokens.show(made, json)


@app.command("ls")
def list_users(context: typer.Context, json: Json = False) -> None:
    """Show who has a token."""
    from tenuto.cli.output import print_json, show_rows

    found = [user for page in client(context).pages("/users") for user in page]
    if json:
        print_json(found)
        return
    rows = [(user["name"], "everything" if user["admin"] else "its own experiments", _kind(user)) for user in found]
    show_rows(("user", "may change", "kind"), rows, "There are no users.")


@app.command("rm")
def remove(context: typer.Context, name: Name) -> None:
    """Take a user's tokens away. Its experiments go on."""
    client(context).delete(f"/users/{name}")
    say(f"User {name} is removed; its tokens are no longer valid.")


def _kind(user: dict[str, Any]) -> str:
    if not user.get("service"):
        return "person" if user["name"] != "admin" else "the cluster's own"
    return f"service of {user['owner']}" if user.get("owner") else "service"
