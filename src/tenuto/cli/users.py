"""user create, ls, rm, whoami, token."""

from __future__ import annotations

from typing import Annotated

import typer

from tenuto.cli import tokens
from tenuto.cli.common import Json, client
from tenuto.cli.say import say
from tenuto.cli.tokens import Days

app = typer.Typer(no_args_is_help=True)
app.add_typer(tokens.app, name="token", help="Tokens of a user: one for each machine or program.")
Name = Annotated[str, typer.Argument(help="Small letters, digits, `_`, `.` and `-`; a letter first.")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May change everything, and not only its own experiments.")] = False,
    days: Days = None,
    json: Json = False,
) -> None:
    """Make a user, and print its token: this once, because only its hash is kept."""
    from tenuto.cli.output import print_json

    made = client(context).post("/users", {"name": name, "admin": admin, "expires_days": days})
    if json:
        print_json(made)
        return
    say(f"User {name} is created.")
    tokens.show(made, json)


@app.command("ls")
def list_users(context: typer.Context, json: Json = False) -> None:
    """Show who has a token."""
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get("/users")
    if json:
        print_json(found)
        return
    rows = [(user["name"], "everything" if user["admin"] else "its own experiments") for user in found]
    show_rows(("user", "may change"), rows, "There are no users.")


@app.command("rm")
def remove(context: typer.Context, name: Name) -> None:
    """Take a user's tokens away. Its experiments go on."""
    client(context).delete(f"/users/{name}")
    say(f"User {name} is removed; its tokens are no longer valid.")


@app.command()
def whoami(context: typer.Context, json: Json = False) -> None:
    """Show as whom you act."""
    from tenuto.cli.output import print_json

    user = client(context).get("/user")
    if json:
        print_json(user)
    else:
        say(f"{user['name']}, who may change {'everything' if user['admin'] else 'its own experiments'}")
        if user["token"] is not None:
            say(f"with the token {user['token']['id']}, which ends {tokens.ends(user['token']['expires_us'])}")
