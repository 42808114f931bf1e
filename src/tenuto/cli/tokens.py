"""user token create, ls, rotate, revoke."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.say import say

app = typer.Typer(no_args_is_help=True)
User = Annotated[str | None, typer.Argument(help="Whose (default: your own).")]
Id = Annotated[str, typer.Argument(help="As `tenuto user token ls` shows it.")]
OfUser = Annotated[str | None, typer.Option("--user", help="Whose (default: your own).")]
Days = Annotated[float | None, typer.Option("--days", help="Life in days (default: as the cluster's settings say; 0: no end).")]


@app.command()
def create(
    context: typer.Context,
    user: User = None,
    label: Annotated[str, typer.Option("--label", help="What it is for, such as `laptop`.")] = "",
    days: Days = None,
    permission: Annotated[list[str] | None, typer.Option("--permission", help="It is limited to this one; repeatable.")] = None,
    role: Annotated[str | None, typer.Option("--role", help="It is limited to what this role may do now.")] = None,
    workspace: Annotated[str | None, typer.Option("--workspace", help="It is limited to this workspace.")] = None,
    json: Json = False,
) -> None:
    """Make one more token, and print it: this once, because only its hash is kept."""
    rest = client(context)
    given = (("permissions", permission), ("role", role), ("workspace", workspace))
    limits = {name: value for name, value in given if value}
    made = rest.post(f"/users/{user or _self(rest)}/tokens", {"label": label, "expires_days": days, **limits})
    show(made, json)


@app.command("ls")
def list_tokens(context: typer.Context, user: User = None, json: Json = False) -> None:
    """Show which tokens there are, and when they end."""
    from tenuto.cli.output import print_json, show_rows, when

    rest = client(context)
    found = rest.get(f"/users/{user or _self(rest)}/tokens")
    if json:
        print_json(found)
        return
    rows = [
        (item["id"], item["label"], _kind(item), when(item["created_us"]), ends(item["expires_us"]), used(item), _limits(item))
        for item in found
    ]
    show_rows(("id", "label", "kind", "created", "ends", "last used", "limited to"), rows, "There are no tokens.")


@app.command()
def rotate(
    context: typer.Context,
    token_id: Annotated[str | None, typer.Argument(help="Which (default: the one that you use now).")] = None,
    user: OfUser = None,
    json: Json = False,
) -> None:
    """Replace a token by a new one. The old one is no longer valid."""
    from tenuto.cli.errors import CliError

    rest = client(context)
    me = rest.get("/user")
    if token_id is None:
        if me["token"] is None:
            raise CliError(
                "You act with the cluster's own token: delete its file (rest.token in the data directory) and start the gateway "
                "again (`tenuto down`, `tenuto up`), and a new one is made."
            )
        token_id = me["token"]["id"]
    show(rest.post(f"/users/{user or me['name']}/tokens/{token_id}/rotate"), json)


@app.command()
def revoke(context: typer.Context, token_id: Id, user: OfUser = None) -> None:
    """Take a token away. It is no longer valid."""
    rest = client(context)
    rest.delete(f"/users/{user or _self(rest)}/tokens/{token_id}")
    say(f"Token {token_id} is no longer valid.")


def show(made: Any, json: bool) -> None:
    from tenuto.cli.output import print_json

    if json:
        print_json(made)
        return
    until = "never ends" if made["expires_us"] is None else f"ends {ends(made['expires_us'])}"
    say(f"The token is shown only now, and {until}; its user sets it as TENUTO_TOKEN:")
    say(made["token"])


def ends(expires_us: int | None) -> str:
    from tenuto.cli.output import when

    return "never" if expires_us is None else when(expires_us)


def used(item: Any) -> str:
    from tenuto.cli.output import when

    return when(item["used_us"]) if item.get("used_us") else ""


def _limits(item: Any) -> str:
    place = [f"workspace {item['workspace']}"] if item.get("workspace") else []
    return ", ".join([*place, *(item.get("permissions") or ())])


def _kind(item: Any) -> str:
    return "sign-in" if item.get("session") else "token"


def _self(rest: Any) -> str:
    return str(rest.get("/user")["name"])
