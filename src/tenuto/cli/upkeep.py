"""parked ls, show, redeliver; views rebuild."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.say import say
from tenuto.client.errors import Refused

parked_app = typer.Typer(no_args_is_help=True)
views_app = typer.Typer(no_args_is_help=True)
RETRY_SECONDS_MAX = 30.0
"""Longest wait for a retry, longer than the consumer pauses between its looks: after that it is not running."""
REBUILD_SECONDS_MAX = 3_600.0
"""Longest wait for a rebuild: a log of some millions of events is folded again in minutes."""
POLL_SECONDS = 0.5
REASON_SHOWN_CHARACTERS = 100
Numbers = Annotated[list[int] | None, typer.Argument(metavar="NUMBER...", help="As `tenuto parked ls` shows them.", min=1)]


@parked_app.command("ls")
def list_parked(context: typer.Context, json: Json = False) -> None:
    """Show events and reports that could not be handled, with their reasons."""
    from tenuto.cli.output import print_json, show_rows, when

    found = _all(client(context))
    if json:
        print_json(found)
        return
    cells = [
        (item["number"], item["consumer"], item["kind"], when(item["parked_us"]), item["retries"], _short(item["reason"]))
        for item in found
    ]
    show_rows((">number", "consumer", "kind", "parked", ">retries", "reason"), cells, "Nothing is parked.")


@parked_app.command()
def show(
    context: typer.Context,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `tenuto parked ls` shows it.", min=1)],
    json: Json = False,
) -> None:
    """Show one of them as it came."""
    from tenuto.cli.output import print_json, when

    item = client(context).get(f"/parked/{number}")
    if json:
        print_json(item)
        return
    say(f"{item['kind']} {item['item_id']}, parked by {item['consumer']} {when(item['parked_us'])}.")
    say(f"Reason: {item['reason']}")
    say(f"Tried again {item['retries']} times. {item['size_bytes']} bytes:")
    say(item["body"])


@parked_app.command("retry", hidden=True)
@parked_app.command()
def redeliver(
    context: typer.Context,
    numbers: Numbers = None,
    everything: Annotated[bool, typer.Option("--all", help="All that can be delivered again.")] = False,
) -> None:
    """Deliver them again, when the cause is mended (status 1 if one still cannot be handled)."""
    rest = client(context)
    if everything == bool(numbers):
        raise UsageError("Give the numbers of what is to be delivered again, or --all.")
    asked = {}
    for number in numbers or [item["number"] for item in _all(rest) if item["consumer"] != "views"]:
        asked[number] = rest.post(f"/parked/{number}/redeliver")
    results = [_outcome(rest, item) for item in asked.values()]
    if not results:
        say("Nothing is parked that can be delivered again.")
    if not all(results):
        raise typer.Exit(1)


def _outcome(rest: Any, asked: dict[str, Any]) -> bool:
    """Waits for it, and says it. True: it is handled."""
    number, deadline = asked["number"], time.monotonic() + RETRY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            item = rest.get(f"/parked/{number}")
        except Refused as refused:
            if refused.word != "not_found":
                raise
            say(f"{number} is handled.")
            return True
        if item["retries"] > asked["retries"]:
            say(f"{number} cannot be handled: {item['reason']}")
            return False
        time.sleep(POLL_SECONDS)
    say(f"{number} still waits: {asked['consumer']} does not look for it; `tenuto status` shows whether its service runs.")
    return False


@views_app.callback()
def views() -> None:
    pass


@views_app.command()
def rebuild(
    context: typer.Context,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait until they are complete again.")] = False,
) -> None:
    """Fold again what lists and pages show, from the whole log. Until it is done they lack what is not folded yet; decisions and
    training go on."""
    rest = client(context)
    events = rest.post("/views/rebuild")["events"]
    if detach:
        say(f"The views are folded again from {events} events; `tenuto status` shows how far they are.")
        return
    deadline = time.monotonic() + REBUILD_SECONDS_MAX
    while (position := _views_position(rest)) < events:
        if time.monotonic() > deadline:
            raise CliError(f"The views have folded {position} of {events} events by now; `tenuto status` shows how they go on.")
        time.sleep(POLL_SECONDS)
    say(f"The views are folded again from {events} events.")


def _views_position(rest: Any) -> int:
    readers = {item["name"]: item["position"] for item in rest.get("/status")["consumers"]}
    return int(readers.get("views", 0))


def _all(rest: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := rest.get("/parked", after=found[-1]["number"] if found else -1):
        found += page
    return found


def _short(reason: str) -> str:
    line = reason.split("\n", 1)[0]
    return line if len(line) <= REASON_SHOWN_CHARACTERS else line[: REASON_SHOWN_CHARACTERS - 3] + "..."
