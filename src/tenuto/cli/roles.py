"""role ls, create, set, rm, grant, revoke, grants, permissions."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

app = typer.Typer(no_args_is_help=True)
Role = Annotated[str, typer.Argument(help="Name of the role.")]
Permissions = Annotated[list[str], typer.Argument(help="Permissions of the role; `tenuto role permissions` lists them.")]
User = Annotated[str | None, typer.Option(help="The user who has it.")]
Group = Annotated[str | None, typer.Option(help="The group of users that has it.")]
Service = Annotated[str | None, typer.Option(help="The service account that has it.")]
InWorkspace = Annotated[str | None, typer.Option("--workspace", "-w", help="Only in this workspace; else in the whole cluster.")]


@app.command("ls")
def list_roles(context: typer.Context, json: Json = False) -> None:
    """Show the roles, and what each allows."""
    _show(context, "/roles", ("role", "permissions"), lambda item: (item["name"], " ".join(item["permissions"])), json)


@app.command()
def permissions(context: typer.Context, json: Json = False) -> None:
    """Show what roles are made of."""
    _show(context, "/permissions", ("permission", "allows to"), lambda item: (item["name"], item["allows"]), json)


@app.command()
def create(context: typer.Context, role: Role, permissions: Permissions) -> None:
    """Make a role of your own."""
    client(context).post("/roles", {"name": role, "permissions": permissions})
    say(f"Role {role} is made; `tenuto role grant {role} --user NAME` gives it to somebody.")


@app.command("set")
def change(context: typer.Context, role: Role, permissions: Permissions) -> None:
    """Let a role of your own allow this from now on, and no more."""
    client(context).put(f"/roles/{role}", {"permissions": permissions})
    say(f"Role {role} is changed.")


@app.command("rm")
def remove(context: typer.Context, role: Role) -> None:
    """Remove a role of your own. Its holders lose it."""
    client(context).delete(f"/roles/{role}")
    say(f"Role {role} is removed.")


@app.command()
def grant(
    context: typer.Context,
    role: Role,
    user: User = None,
    group: Group = None,
    service: Service = None,
    workspace: InWorkspace = None,
) -> None:
    """Give a role to a user, a group or a service account."""
    holder = _holder(user, group, service)
    changed = client(context).post(f"{_place(workspace)}/grants", {**holder, "role": role})["changed"]
    say(f"{_name(holder)} {'now has' if changed else 'already had'} the role {role} in {_words(workspace)}.")


@app.command()
def revoke(
    context: typer.Context,
    role: Role,
    user: User = None,
    group: Group = None,
    service: Service = None,
    workspace: InWorkspace = None,
) -> None:
    """Take a role away that was granted there."""
    holder = _holder(user, group, service)
    client(context).delete(f"{_place(workspace)}/grants/{holder['kind']}/{quote(holder['name'], safe='')}/{role}")
    say(f"{_name(holder)} no longer has the role {role} in {_words(workspace)}.")


@app.command()
def grants(context: typer.Context, workspace: InWorkspace = None, json: Json = False) -> None:
    """Show who has which role, and where."""
    _show(
        context,
        "/grants",
        ("holder", "role", "where"),
        lambda item: (_name(item), item["role"], _words(item["workspace"])),
        json,
        **({"workspace": workspace} if workspace else {}),
    )


def _holder(user: str | None, group: str | None, service: str | None) -> dict[str, str]:
    given = {kind: name for kind, name in (("user", user), ("group", group), ("service", service)) if name is not None}
    if len(given) != 1:
        raise CliError("Name one holder of the role: --user, --group or --service.")
    [(kind, name)] = given.items()
    return {"kind": kind, "name": name}


def _name(holder: dict[str, Any]) -> str:
    return f"{'service account' if holder['kind'] == 'service' else holder['kind']} {holder['name']}"


def _place(workspace: str | None) -> str:
    return "" if workspace is None else f"/workspaces/{quote(workspace, safe='')}"


def _words(workspace: str | None) -> str:
    return "the whole cluster" if workspace is None else f"workspace {workspace}"


def _show(context: typer.Context, path: str, titles: tuple[str, ...], row: Any, json: bool, **query: Any) -> None:
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get(path, **query)
    if json:
        print_json(found)
    else:
        show_rows(titles, [row(item) for item in found], "There are none.")
