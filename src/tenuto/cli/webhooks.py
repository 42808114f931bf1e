"""webhook create, edit, pause, resume, explain, ls, show, test, deliveries, redeliver, rotate, rm."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.say import say
from tenuto.cli.webhook_targets import asked, target_of

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Small letters, digits, `_`, `.` and `-`; a letter first.")]
TEST_SECONDS_MAX = 30.0
"""Two attempts: a receiver that has not answered by then is not well."""
POLL_SECONDS = 0.2
FORMS = (
    "experiment:STATE, trial:STATE (completed, failed, canceled, early_stopped; several with commas), metric:NAME>VALUE, "
    "metric:NAME<VALUE, stall:VALIDATIONS, stall:NAME:VALIDATIONS, log, log:TEXT, agent_lost, checkpoint_damaged, straggler, "
    "notice, notice:LEVEL,LEVEL, wait:SECONDS, event:TYPE,TYPE"
)


@app.command()
def create(
    context: typer.Context,
    name: Name,
    to: Annotated[
        str,
        typer.Option(metavar="KIND", help="http, slack, pagerduty, email, apprise, or a kind of a plug-in."),
    ],
    on: Annotated[list[str], typer.Option(help=f"What triggers a notice, several times if need be: {FORMS}.")],
    url: Annotated[str | None, typer.Option(help="http: the receiver's address.")] = None,
    host: Annotated[str | None, typer.Option(help="email: the server that takes mail (SMTP).")] = None,
    port: Annotated[int | None, typer.Option(min=1, help="email: its port (587 with starttls, 465 with tls).")] = None,
    security: Annotated[
        Literal["starttls", "tls", "none"] | None, typer.Option(help="email: encryption; starttls unless given.")
    ] = None,
    username: Annotated[str | None, typer.Option(help="email: to log in with; the password is asked for.")] = None,
    sender: Annotated[str | None, typer.Option(help="email: address that mails are from.")] = None,
    recipient: Annotated[list[str] | None, typer.Option(help="email: address that mails go to; may be repeated.")] = None,
    channel: Annotated[str | None, typer.Option(help="slack: id of the channel that a bot posts to.")] = None,
    api_url: Annotated[str | None, typer.Option(help="pagerduty, slack with a bot: another address of their API.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A plug-in's kind: a setting; may be repeated.")
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A plug-in's kind: a secret setting, to be asked for; may be repeated."),
    ] = None,
    own_secret: Annotated[bool, typer.Option("--own-secret", help="http: ask for the secret, and make none.")] = False,
    experiment: Annotated[list[int] | None, typer.Option(min=1, help="Only of these experiments.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Only of these users' experiments.")] = None,
    workspace: Annotated[list[str] | None, typer.Option(help="Only of these workspaces.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Only of experiments with all these labels.")] = None,
    group: Annotated[float, typer.Option(min=0, help="Seconds: what comes within them goes into one message.")] = 0.0,
    recoveries: Annotated[
        bool | None, typer.Option("--recoveries/--no-recoveries", help="Say when it is well again (default: to pagerduty only).")
    ] = None,
    json: Json = False,
) -> None:
    """Make a webhook. Passwords, tokens, keys, and addresses of Slack and apprise are asked for, or read from standard input;
    they are never arguments, which others on this machine could see."""
    from tenuto.cli.output import print_json

    options = {
        "url": url, "channel": channel, "api_url": api_url, "host": host, "port": port, "security": security,
        "username": username, "sender": sender, "recipient": recipient,
    }  # fmt: skip
    body = {
        "name": name,
        "target": target_of(to, options, own_secret, settings or [], ask or []),
        "triggers": [_trigger(text) for text in on],
        "filters": {"experiments": experiment or [], "users": user or [], "workspaces": workspace or [], "labels": label or []},
        "group_seconds": group,
        "recoveries": recoveries,
    }
    made = client(context).post("/webhooks", body)
    if json:
        print_json(made)
        return
    say(f"Webhook {name} sends notices to {made['kind']} at {made['place']}; `tenuto webhook test {name}` tries it.")
    if made["secret"] and not own_secret:
        say(f"Its receiver checks messages with this secret, which is shown this once: {made['secret']}")


def _trigger(text: str) -> dict[str, Any]:
    """Trigger from the text of `--on`. Raises CliError."""
    kind, _, rest = text.partition(":")
    if kind in ("experiment", "trial") and rest:
        return {"on": kind, "states": rest.split(",")}
    if kind == "notice":
        return {"on": kind, "levels": rest.split(",")} if rest else {"on": kind}
    if kind == "wait" and rest:
        return {"on": kind, "seconds": _number(rest, text)}
    if kind == "event" and rest:
        return {"on": kind, "types": rest.split(",")}
    if kind == "log":
        return {"on": kind, "contains": rest}
    if kind == "metric" and (found := re.fullmatch(r"(.+?)([<>])([^<>]+)", rest)):
        return {"on": kind, "metric": found[1], {">": "above", "<": "below"}[found[2]]: _number(found[3], text)}
    if kind == "stall" and rest:
        metric, _, validations = rest.rpartition(":")
        return {"on": kind, "metric": metric, "validations": int(_number(validations, text))}
    if kind in ("agent_lost", "checkpoint_damaged", "straggler") and not rest:
        return {"on": kind}
    raise CliError(f"--on {text!r} is no trigger; there are {FORMS}.")


def _number(text: str, trigger: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CliError(f"--on {trigger!r} is no trigger: {text!r} must be a number.") from None


@app.command()
def edit(
    context: typer.Context,
    name: Name,
    on: Annotated[list[str] | None, typer.Option(help=f"Triggers in place of those there are: {FORMS}.")] = None,
    experiment: Annotated[list[int] | None, typer.Option(min=1, help="Only of these experiments.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Only of these users' experiments.")] = None,
    workspace: Annotated[list[str] | None, typer.Option(help="Only of these workspaces.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Only of experiments with all these labels.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Of all experiments: without the filters that there are.")] = False,
    group: Annotated[float | None, typer.Option(min=0, help="Seconds: what comes within them goes into one message.")] = None,
    recoveries: Annotated[bool | None, typer.Option("--recoveries/--no-recoveries", help="Say when it is well again.")] = None,
) -> None:
    """Change a webhook's triggers, filters, grouping or recoveries. What is not given stays; of the filters, those that are given
    replace those of their kind."""
    filters = {"experiments": experiment, "users": user, "workspaces": workspace, "labels": label}
    given = {key: value for key, value in filters.items() if value}
    if all and given:
        raise UsageError("--all takes all filters away: give it without others.")
    rest, body = client(context), dict[str, Any]()
    if on:
        body["triggers"] = [_trigger(text) for text in on]
    if all or given:
        body["filters"] = {} if all else rest.get(f"/webhooks/{name}")["filters"] | given
    if group is not None:
        body["group_seconds"] = group
    if recoveries is not None:
        body["recoveries"] = recoveries
    if not body:
        raise UsageError("Nothing is to be changed: give --on, a filter, --all, --group or --recoveries.")
    rest.patch(f"/webhooks/{name}", body)
    say(f"Webhook {name} is changed; `tenuto webhook show {name}` shows it.")


@app.command()
def pause(context: typer.Context, name: Name) -> None:
    """Let nothing trigger notices, and keep what waits to be sent."""
    waiting = client(context).patch(f"/webhooks/{name}", {"paused": True})["waiting"]
    say(f"Webhook {name} is paused; {waiting} notices wait until `tenuto webhook resume {name}`.")


@app.command()
def resume(context: typer.Context, name: Name) -> None:
    """Let events trigger notices again, and send what waits. What happened meanwhile is not told."""
    waiting = client(context).patch(f"/webhooks/{name}", {"paused": False})["waiting"]
    say(f"Webhook {name} sends again; {waiting} notices wait.")


@app.command()
def explain(
    context: typer.Context,
    name: Name,
    event: Annotated[str, typer.Argument(help="Id or position of the event: `tenuto event tail --json` shows both.")],
) -> None:
    """Say why the webhook has, or has not, a notice about an event, by its triggers and filters as they were then."""
    query = f"position={event}" if event.isascii() and event.isdigit() else f"event_id={quote(event, safe='')}"
    found = client(context).get(f"/webhooks/{name}/explanation?{query}")
    about = f"{found['event_type']} at position {found['position']}"
    fired = f"triggered notice {found['number']}" if found["number"] else "triggered no notice"
    say(f"{about} {fired} of webhook {name}:")
    for sentence in found["sentences"]:
        say(f"  {sentence}")


@app.command("ls")
def list_webhooks(context: typer.Context, json: Json = False) -> None:
    """Show webhooks, and how their targets take what is sent."""
    from tenuto.cli.output import print_json, show_rows

    found = client(context).get("/webhooks")
    if json:
        print_json(found)
        return
    cells = [
        (item["name"], item["owner"], item["kind"], item["place"], item["notices"], item["waiting"], item["parked"], _state(item))
        for item in found
    ]
    show_rows(("webhook", "owner", "kind", "place", ">notices", ">waiting", ">parked", "target"), cells, "There are no webhooks.")


def _state(item: dict[str, Any]) -> str:
    from tenuto.cli.output import when

    if item["paused"]:
        return "paused"
    if not item["attempts"]:
        return f"is tried again {when(item['next_us'])}" if item["next_us"] else "well"
    return f"{item['answer']} (attempt {item['attempts']}, next {when(item['next_us'])})"


@app.command()
def show(context: typer.Context, name: Name, json: Json = False) -> None:
    """Show one webhook with its triggers. What is secret of it is never shown."""
    from tenuto.cli.output import print_json, when

    item = client(context).get(f"/webhooks/{name}")
    if json:
        print_json(item)
        return
    say(f"Webhook {name} of {item['owner']}, made {when(item['created_us'])}: to {item['kind']} at {item['place']}.")
    for trigger in item["triggers"]:
        values = ", ".join(f"{key} {_plain(value)}" for key, value in trigger.items() if key != "on" and value not in (None, ""))
        say(f"  on {trigger['on']}{': ' if values else ''}{values}")
    for what, values in item["filters"].items():
        if values:
            say(f"  only {what}: {_plain(values)}")
    if item["group_seconds"]:
        say(f"  what comes within {item['group_seconds']:g} s is one message")
    say(f"{item['notices']} notices, {item['waiting']} waiting, {item['parked']} parked; its target: {_state(item)}.")


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@app.command()
def test(context: typer.Context, name: Name) -> None:
    """Send a notice that is about nothing, and wait for what becomes of it (status 1 if it is not delivered)."""
    rest = client(context)
    number = rest.post(f"/webhooks/{name}/test")["number"]
    deadline = time.monotonic() + TEST_SECONDS_MAX
    while time.monotonic() < deadline:
        for item in rest.get(f"/webhooks/{name}/deliveries"):
            if item["number"] == number and item["state"] == "delivered":
                say(f"Notice {number} is delivered: {item['answer']}.")
                return
            if item["number"] == number and item["state"] == "parked":
                raise CliError(f"Notice {number} is not delivered: {item['answer']}")
        time.sleep(POLL_SECONDS)
    found = rest.get(f"/webhooks/{name}")
    raise CliError(f"Notice {number} still waits, with {found['waiting'] - 1} others; its target: {_state(found)}.")


@app.command()
def deliveries(
    context: typer.Context,
    name: Name,
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1_000, help="So many, the newest.")] = 20,
    json: Json = False,
) -> None:
    """Show what became of notices, the newest first."""
    from tenuto.cli.output import print_json, show_rows, when

    found = client(context).get(f"/webhooks/{name}/deliveries?limit={number}")
    if json:
        print_json(found)
        return
    cells = [
        (item["number"], when(item["time_us"]), item["state"], item["attempts"], item["answer"], item["why"]) for item in found
    ]
    show_rows((">notice", "triggered", "state", ">attempts", "answer", "why"), cells, f"Webhook {name} has no notices yet.")


@app.command()
def redeliver(
    context: typer.Context,
    name: Name,
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="[NOTICE...]", min=1, help="Without: all that are parked.")
    ] = None,
) -> None:
    """Send parked notices again."""
    again = client(context).post(f"/webhooks/{name}/redeliver", {"numbers": numbers or []})["numbers"]
    say(f"{len(again)} notices of webhook {name} are sent again." if again else f"No notice of webhook {name} is parked.")


@app.command()
def rotate(
    context: typer.Context,
    name: Name,
    own_secret: Annotated[bool, typer.Option("--own-secret", help="Ask for the secret, and make none.")] = False,
    keep_old_hours: Annotated[
        float, typer.Option(min=0, help="Messages are signed with the old secret, too, for so long.")
    ] = 24.0,
) -> None:
    """Sign messages with a new secret, and for some time with the old one as well, so that none is refused meanwhile."""
    secret = asked("Secret (whsec_...)") if own_secret else None
    made = client(context).post(f"/webhooks/{name}/rotate", {"secret": secret, "keep_old_hours": keep_old_hours})
    say(f"Messages of webhook {name} are signed with a new secret; the old one is good for {keep_old_hours:g} hours more.")
    if not own_secret:
        say(f"It is shown this once: {made['secret']}")


@app.command("rm")
def remove(context: typer.Context, name: Name) -> None:
    """Remove a webhook. What waits to be sent there is given up."""
    client(context).delete(f"/webhooks/{name}")
    say(f"Webhook {name} is removed.")
