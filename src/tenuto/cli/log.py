"""event tail, log verify, log anchor."""

from __future__ import annotations

import json as json_module
from pathlib import Path
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
    """Show events as they are recorded. With --json one event per line; when not following, its data as recorded."""
    rest = client(context)
    after = start - 1 if start is not None else max(0, rest.get("/status")["head"] - TAIL_EVENTS)
    source: Any = (
        rest.follow(after, experiment) if follow else ((None, body) for body in rest.event_bodies(after, None, experiment))
    )
    for shown, (event, body) in enumerate(source, 1):
        if json:
            print(safe_json(body.decode()) if event is None else json_text(event), flush=True)
        else:
            say(_line(json_module.loads(body) if event is None else event), flush=True)
        if shown == limit:
            return


def _line(event: dict[str, Any]) -> str:
    from tenuto.cli.output import plain, when

    data = dict(event["data"])
    reason = data.pop("reason", None)
    data.pop("config", None)
    why = event.get("sentence") or (reason if isinstance(reason, str) else "")
    text = f"{event['position']:>7}  {when(event['time_us'])}  {event['stream']:<16} {event['type']:<26} {plain(data)}"
    return f"{text}  ({why})" if why else text


@app.command()
def verify(
    context: typer.Context,
    anchors: Annotated[
        Path | None, typer.Option(help="Compare also with these anchors, one JSON line each (such as a webhook was sent).")
    ] = None,
    json: Json = False,
) -> None:
    """Check the whole log: any change of a recorded event is found by its hash, and a missing end by what consumers, the bus
    and the anchors know of it."""
    from tenuto.cli.output import print_json

    verdict = client(context).post("/log/verify", {"anchors": _given(anchors)} if anchors else None)
    if json:
        print_json(verdict)
    elif verdict["tampered"] is None:
        say(f"The log is intact: {verdict['events']} events, head {verdict['head']}, hash {verdict['head_hash'][:16]}.")
        anchored = verdict["anchors"]
        bus = "" if any(problem.startswith("the bus ") for problem in verdict["unchecked"]) else ", the bus"
        say(f"Its end was compared with its readers{bus} and {anchored} anchor{'s' * (anchored != 1)}.")
        for problem in verdict["unchecked"]:
            say(f"Not compared: {problem}.")
    if verdict["tampered"] is not None:
        tampered = verdict["tampered"]
        raise CliError(f"The log was changed at position {tampered['position']}: {tampered['reason']}")


@app.command()
def anchor(context: typer.Context, json: Json = False) -> None:
    """Note the signed end of the log at all targets of TENUTO_ANCHOR_TARGETS now (the gateway does so from time to time)."""
    from tenuto.cli.output import print_json

    noted = client(context).post("/log/anchor")
    if json:
        print_json(noted)
    else:
        say(f"Position {noted['anchor']['position']}, hash {noted['anchor']['hash'][:16]}, is noted in:")
        say("\n".join(f"  {name}" for name in noted["kept"]) or "  none")
    if noted["failed"]:
        raise CliError("Not noted everywhere: " + "; ".join(f"{name}: {why}" for name, why in noted["failed"].items()))


def _given(file: Path) -> list[dict[str, Any]]:
    """The newest ones: each covers all that was recorded before it."""
    from tenuto.schemas.anchors import ANCHORS_SENT_MAX

    try:
        lines = [line for line in file.read_text().splitlines() if line.strip()]
        return [json_module.loads(line) for line in lines[-ANCHORS_SENT_MAX:]]
    except (OSError, ValueError) as error:
        raise CliError(f"{file} cannot be read as anchors, one JSON line each: {error}.") from error
