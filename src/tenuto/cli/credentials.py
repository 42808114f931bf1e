"""agent credentials, agent revoke: who may speak as which agent on the bus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from tenuto.cli.common import client, data_dir_of
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from tenuto.kernel.bus_users import BusUsers

UsersDirectory = Annotated[
    Path | None,
    typer.Option("--users", help="Directory with the bus's users (default: that of the cluster on this machine)."),
]


def add_to(app: typer.Typer) -> None:
    app.command("credentials")(credentials)
    app.command("revoke")(revoke)


def credentials(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The agent's name: its TENUTO_AGENT_ID.")],
    users: UsersDirectory = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write them to this file, which only you can read, not to the screen.")
    ] = None,
    renew: Annotated[bool, typer.Option(help="Make a new password; the old one is no longer valid.")] = False,
) -> None:
    """Print what an agent logs in to the bus with, as settings; made where the agent has none."""
    from tenuto.kernel.bus_permissions import agent_user
    from tenuto.kernel.bus_users import BadAgentName
    from tenuto.kernel.private_files import write_private

    found = users_of(context, users)
    try:
        before = found.agents()
        found.services()
        [password] = found.add_agents([name], renew=renew).values()
        lines = {"TENUTO_AGENT_ID": name, "TENUTO_NATS_USER": agent_user(name), "TENUTO_NATS_PASSWORD": password}
        text = "".join(f"{variable}={value}\n" for variable, value in lines.items())
        if output is not None:
            write_private(output.absolute(), text)
    except BadAgentName as error:
        raise CliError(str(error)) from error
    except (OSError, ValueError) as error:
        raise CliError(f"The credentials of {name} could not be written: {error}.") from error
    if renew or name not in before:
        tell_bus(context, users)
    say(text, end="") if output is None else say(f"The credentials of {name} are in {output}, for you alone to read.")


def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The agent's name, or the id of a join token (jt-...).")],
    users: UsersDirectory = None,
) -> None:
    """Take an agent's credentials away: its connection to the bus ends at once, what it runs goes on elsewhere, and it comes back
    only by a join token. Or take a join token away: no more machines join by it."""
    if users is None:
        _revoke_on_record(context, name)
        return
    try:
        removed = users_of(context, users).remove_agent(name)
    except (OSError, ValueError) as error:
        raise CliError(f"The credentials of {name} could not be removed: {error}.") from error
    if not removed:
        raise CliError(f"No agent named {name} has credentials; `tenuto agent ls` shows the agents.")
    tell_bus(context, users)
    say(f"Agent {name} no longer has credentials.")


def _revoke_on_record(context: typer.Context, name: str) -> None:
    import re

    from tenuto.schemas.joining import TOKEN_ID_PATTERN

    rest = client(context)
    if re.fullmatch(TOKEN_ID_PATTERN, name):
        rest.delete(f"/join-tokens/{name}")
        say(f"No more machines join by token {name}; those that did stay.")
        return
    rest.delete(f"/agents/{quote(name, safe='')}")
    say(f"Agent {name} no longer has credentials.")


def users_of(context: typer.Context, directory: Path | None) -> BusUsers:
    from tenuto.embedded.files import Layout
    from tenuto.kernel.bus_users import BusUsers

    if directory is not None:
        return BusUsers(directory.absolute())
    layout = Layout.of(data_dir_of(context, None))
    if not layout.bus_users.exists():
        raise CliError(f"There is no cluster in {layout.root}: start it with tenuto up, or name the directory with --users.")
    return BusUsers(layout.bus_users)


def tell_bus(context: typer.Context, directory: Path | None) -> None:
    """NATS reads its users again."""
    import sys

    from tenuto.embedded.files import Layout
    from tenuto.embedded.nats import NatsServer

    if directory is None:
        NatsServer(Layout.of(data_dir_of(context, None)).nats).reload()
    else:
        say("Tell NATS to read its users again, with SIGHUP (nats-server --signal reload).", file=sys.stderr)
