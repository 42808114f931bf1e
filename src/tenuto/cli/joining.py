"""agent token, agent tokens, agent run: machines that join a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.common import Json, client, notice
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from tenuto.schemas.join_tokens import JoinToken
    from tenuto.workers.agent.joining import Joined

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DIRECTORY_DEFAULT = "~/.tenuto-agent"
AWAY_SECONDS_MAX = 120.0
"""Longest wait for a gateway that does not answer: a machine often starts together with its network."""
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.5, 5.0


def add_to(app: typer.Typer) -> None:
    app.command("token")(token)
    app.command("tokens")(list_tokens)
    app.command("run")(run)


def token(
    context: typer.Context,
    pool: Annotated[str, typer.Option("--pool", help="Pool that its machines offer their slots to.")] = "default",
    expires: Annotated[str, typer.Option("--expires", help="Time in which machines may join: 30m, 1h, 7d.")] = "1h",
    uses: Annotated[int, typer.Option("--uses", min=1, help="Most machines that join by it.")] = 1,
    label: Annotated[str, typer.Option("--label", help="What it is for, such as `rack 7`.")] = "",
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address of the gateway as those machines reach it, such as http://10.0.0.1:8080."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a token by which machines join a pool, and print it: this once, because only its hash is kept."""
    from urllib.parse import urlsplit

    from tenuto.cli.output import print_json, when

    body = {"pool": pool, "expires_seconds": _seconds(expires), "uses_max": uses, "label": label}
    made = client(context).post("/join-tokens", body | ({"url": address} if address else {}))
    if json:
        print_json(made)
        return
    machines = "one machine joins" if uses == 1 else f"up to {uses} machines join"
    say(f"By this token {machines} pool {pool}, until {when(made['expires_us'])}. It is shown only now; on the machine run:")
    say(f"tenuto agent run --join {made['token']}")
    if (urlsplit(made["url"]).hostname or "") in ("127.0.0.1", "localhost", "::1"):
        notice(f"The token names {made['url']}, which only this machine reaches: give another with --address.")


def list_tokens(context: typer.Context, json: Json = False) -> None:
    """Show which join tokens there are, when they end, and how many machines joined by them."""
    from tenuto.cli.output import print_json, show_rows, when

    found = client(context).get("/join-tokens")
    if json:
        print_json(found)
        return
    rows = [
        (item["id"], item["pool"], item["label"], f"{item['uses']}/{item['uses_max']}", when(item["expires_us"]))
        for item in found
    ]
    show_rows(("id", "pool", "label", "joined", "ends"), rows, "There are no join tokens.")


def run(
    join: Annotated[
        str | None,
        typer.Option(
            "--join", envvar="TENUTO_JOIN_TOKEN", help="Join token; needed once, and not after a restart.", show_default=False
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", help=f"Directory of the agent (default: TENUTO_AGENT_DIRECTORY, else {DIRECTORY_DEFAULT})."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the agent (default: that of the machine).")] = None,
    cpu_slots: Annotated[
        int | None, typer.Option("--cpu-slots", min=1, help="CPU slots if it has no GPU (default: its cores).")
    ] = None,
    label: Annotated[list[str] | None, typer.Option("--label", help="Label key=value, such as rack=7; repeatable.")] = None,
    worker_user: Annotated[str | None, typer.Option("--worker-user", help="Account that trials run as.")] = None,
) -> None:
    """Run this machine's agent. With --join the machine joins the cluster first; later it starts without."""
    from tenuto.workers.agent.joining import NotJoined

    place = (directory or Path(os.environ.get("TENUTO_AGENT_DIRECTORY") or DIRECTORY_DEFAULT)).expanduser().absolute()
    try:
        joined = _membership(place, join, name)
    except NotJoined as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(f"{place} cannot be used: {error.strerror or error}.") from error
    own = {"TENUTO_AGENT_DIRECTORY": str(place)}
    own |= {"TENUTO_CPU_SLOTS": str(cpu_slots)} if cpu_slots else {}
    own |= {"TENUTO_AGENT_LABELS": ",".join(label)} if label else {}
    own |= {"TENUTO_WORKER_USER": worker_user} if worker_user else {}
    notice(f"Agent {joined.agent_id} offers its slots to pool {joined.pool} of {joined.gateway}.")
    _become(own)


def _become(own: dict[str, str]) -> None:
    """This process becomes the agent's, whose command line has no token. Credentials of the environment would go before those of
    the directory."""
    import sys

    others = ("TENUTO_JOIN_TOKEN", "TENUTO_NATS_USER", "TENUTO_NATS_PASSWORD", "TENUTO_NATS_PASSWORD_FILE")
    environment = {key: value for key, value in os.environ.items() if key not in others}
    os.execve(sys.executable, [sys.executable, "-m", "tenuto.workers.agent"], environment | own)


def _membership(place: Path, text: str | None, name: str | None) -> Joined:
    """Credentials of this directory, or new ones by the token. Raises NotJoined and OSError."""
    from tenuto.schemas.join_tokens import BadJoinToken, JoinToken
    from tenuto.workers.agent.joining import NotJoined, read

    try:
        shown = JoinToken.read(text) if text else None
    except BadJoinToken as error:
        raise NotJoined(str(error)) from error
    found = read(place)
    if found is not None and found.complete and (shown is None or not _was_revoked(found)):
        if name is not None and name != found.agent_id:
            raise NotJoined(
                f"{place} is the directory of agent {found.agent_id}: leave out --name, or choose another --directory."
            )
        return found
    if shown is None:
        raise NotJoined("This machine has not joined a cluster: give a token with --join; `tenuto agent token` there makes one.")
    return _joined(place, shown, name or (found.agent_id if found is not None else os.uname().nodename))


def _was_revoked(found: Joined) -> bool:
    from tenuto.workers.agent.joining import GatewayAway, is_member

    try:
        return not is_member(found)
    except GatewayAway:  # the agent finds out itself
        return False


def _joined(place: Path, shown: JoinToken, name: str) -> Joined:
    """Raises NotJoined and OSError."""
    import time

    from tenuto.kernel.backoff import Backoff
    from tenuto.workers.agent.joining import GatewayAway, NotJoined
    from tenuto.workers.agent.joining import join as ask

    deadline, backoff = time.monotonic() + AWAY_SECONDS_MAX, Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
    told = False
    while True:
        try:
            return ask(place, shown, name)
        except GatewayAway as error:
            if time.monotonic() > deadline:
                raise NotJoined(str(error)) from error
            if not told:
                notice(f"{error} Trying again for {AWAY_SECONDS_MAX:.0f} s.")
            told = True
        time.sleep(backoff.failed())


def _seconds(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not (number.isascii() and number.isdecimal()) or int(number) == 0:
        raise CliError(f"--expires is {text!r}, but must be a number with s, m, h or d, such as 30m, 1h or 7d.")
    return int(number) * UNITS[unit]
