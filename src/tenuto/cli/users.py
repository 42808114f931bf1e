"""user create, ls, rm, whoami."""

from __future__ import annotations

from typing import Annotated

import typer

from tenuto.cli.common import Json, client

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Small letters, digits, `_`, `.` and `-`; a letter first.")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May change everything, and not only its own experiments.")] = False,
    json: Json = False,
) -> None:
    """Make a user, and print its token: this once, because only its hash is kept."""
    from tenuto.cli.output import print_json

    made = client(context).post("/users", {"name": name, "admin": admin})
    if json:
        print_json(made)
        return
    print(f"User {name} is created. The token is shown only now; the user sets it as TENUTO_TOKEN:")
    print(made["token"])


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
    """Take a user's token away. Its experiments go on."""
    client(context).delete(f"/users/{name}")
    print(f"User {name} is removed; its token is worth nothing any more.")


@app.command()
def whoami(context: typer.Context, json: Json = False) -> None:
    """Show as whom you act."""
    from tenuto.cli.output import print_json

    user = client(context).get("/user")
    if json:
        print_json(user)
    else:
        print(f"{user['name']}, who may change {'everything' if user['admin'] else 'its own experiments'}")
