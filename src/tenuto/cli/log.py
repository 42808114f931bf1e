"""event tail, log verify."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import json_text, safe_json, say

events_app = typer.Typer(no_args_is_help=True)
app = typer.Typer(no_args_is_help=True)
TAIL_EVENTS = 20


@events_app.callback()
def events() -> None:
    pass


@app.callback()
def log() -> None:
    pass


@events_app.command()
def tail(
    context: typer.Context,
    start: Annotated[
        int | None, typer.Option("--from", help="First position to show (default: the last 20 events).", min=1)
    ] = None,
    experiment: Annotated[int | None, typer.Option("--experiment", "-e", help="Only events of this experiment.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Stop after so many events.", min=1)] = None,
    follow: Annotated[bool, typer.Option(help="Go on as events come.")] = True,
    json: Json = False,
) -> None:
    """Show events as they are recorded. With --json one event per line, byte for byte as recorded when not following."""
    rest = client(context)
    after = start - 1 if start is not None else max(0, rest.get("/status")["head"] - TAIL_EVENTS)
    source: Any = rest.follow(after, experiment) if follow else rest.events(after, None, experiment)
    for shown, item in enumerate(source, 1):
        if json:
            print(safe_json(item.decode()) if isinstance(item, bytes) else json_text(item), flush=True)
        else:
            say(_line(json_module.loads(item) if isinstance(item, bytes) else item), flush=True)
        if shown == limit:
            return


def _line(event: dict[str, Any]) -> str:
    from tenuto.cli.output import plain, when

    data = dict(event["data"])
    reason = data.pop("reason", None)
    data.pop("config", None)
    why = reason["text"] if isinstance(reason, dict) else reason or ""
    text = f"{event['position']:>7}  {when(event['time_us'])}  {event['stream']:<16} {event['type']:<26} {plain(data)}"
    return f"{text}  ({why})" if why else text


@app.command()
def verify(context: typer.Context, json: Json = False) -> None:
    """Check the hash chain of the whole log: any change of a recorded event is found, with its position."""
    from tenuto.cli.output import print_json

    verdict = client(context).post("/log/verify")
    if json:
        print_json(verdict)
    elif verdict["tampered"] is None:
        say(f"The log is intact: {verdict['events']} events, head {verdict['head']}, hash {verdict['head_hash'][:16]}.")
    if verdict["tampered"] is not None:
        tampered = verdict["tampered"]
        raise CliError(f"The log was changed at position {tampered['position']}: {tampered['reason']}")
