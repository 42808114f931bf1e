"""up, down, status."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import DataDir, Json, client, data_dir_of
from tenuto.cli.errors import CliError
from tenuto.cli.say import say
from tenuto.client.errors import ClientError

if TYPE_CHECKING:
    from tenuto.embedded.options import Options

BACKLOG_SHOWN_MIN = 100
"""Fewer reports of one agent and lane are on their way at any time."""
BACKLOG_SHOWN_MAX = 20
REQUESTS_SHOWN_MIN = 50
"""A quarter of what one user may have under way; a page and some scripts have fewer."""


def add_to(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command()(migrate)


def up(
    context: typer.Context,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when the cluster is ready; it goes on.")] = False,
    data_dir: DataDir = None,
    port: Annotated[int | None, typer.Option(help="Port of the REST door.", min=1, max=65535)] = None,
    cpu_slots: Annotated[
        int | None, typer.Option(help="CPU slots to offer where there is no GPU (default: cores).", min=1)
    ] = None,
    agents: Annotated[int, typer.Option(help="Agents, each with its own slots, as if on so many machines.", min=1, max=64)] = 1,
    worker_user: Annotated[
        str | None,
        typer.Option(help="Account that training code runs as; needs root (default: your own, or of root: tenuto-worker)."),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(help="Address of this machine at which others reach the cluster, with TLS (default: this machine only)."),
    ] = "",
) -> None:
    """Start a whole cluster on this machine: PostgreSQL, NATS, the services and one agent. Ctrl-C stops it.

    On a directory that was up before it goes on where it was.
    """
    from tenuto.embedded.files import Layout
    from tenuto.embedded.options import Options
    from tenuto.kernel.settings import Settings

    settings = Settings.from_environment()  # a wrong one is told before anything starts
    user = worker_user or settings.worker_user
    options = Options(Layout.of(data_dir_of(context, data_dir)), port, cpu_slots, agents, user, listen)
    if detach:
        _detached(options)
        return
    import asyncio

    from tenuto.embedded.supervisor import supervise

    def report(line: str) -> None:
        say(line, file=sys.stderr, flush=True)

    def ready(url: str) -> None:
        say(f"Tenuto is up at {url} (data: {options.layout.root}). Ctrl-C stops it.", flush=True)

    asyncio.run(supervise(options, report, ready))
    say("Tenuto is down.")


def _detached(options: Options) -> None:
    from tenuto.embedded.start import start_detached

    url = start_detached(options, lambda line: say(line, file=sys.stderr, flush=True))
    say(f"Tenuto is up at {url} (data: {options.layout.root}). `tenuto down` stops it.")


def down(context: typer.Context, data_dir: DataDir = None) -> None:
    """Stop the cluster on this machine. Nothing is lost: `tenuto up` goes on where it was."""
    from tenuto.embedded.files import Layout
    from tenuto.embedded.stop import stop_cluster

    layout = Layout.of(data_dir_of(context, data_dir))
    say("Tenuto is down." if stop_cluster(layout) else f"No cluster is up in {layout.root}.")


def status(context: typer.Context, data_dir: DataDir = None, json: Json = False) -> None:
    """Show whether the cluster is up, its processes, and how far each service has read the log."""
    from tenuto.cli.output import print_json
    from tenuto.embedded.files import Layout, is_up, read_state

    url = (context.obj or (None, None))[1] or os.environ.get("TENUTO_URL")
    layout = Layout.of(data_dir_of(context, data_dir))
    state = None if url else read_state(layout)
    up = bool(url) or (state is not None and is_up(layout))
    answer: dict[str, Any] = {"up": up, "url": url or (state.url if state and up else None)}
    if state is not None and up:
        answer["processes"] = {name: vars(process) for name, process in state.processes.items()}
    if not up:
        answer["data_directory"] = str(layout.root)
        if not json:
            say(f"No cluster is up in {layout.root}.")
    else:
        context.obj = (data_dir_of(context, data_dir), url)
        try:
            answer |= client(context).get("/status")
        except ClientError as error:
            answer["error"] = str(error)
    if json:
        print_json(answer)
    elif up:
        _show_status(answer)
    if not up or "error" in answer:
        raise typer.Exit(1)


def _show_status(answer: dict[str, Any]) -> None:
    from tenuto.cli.output import console, seconds, table, when

    say(f"Tenuto is up at {answer['url']}.")
    screen = console()
    if processes := answer.get("processes"):
        rows = [
            (name, process["state"], process["pid"], process["restarts"], when(process["started_us"]), process["message"])
            for name, process in processes.items()
        ]
        screen.print(table("", ("process", "state", ">pid", ">restarts", "since", "last end"), rows))
    if consumers := answer.get("consumers"):
        readers = [(item["name"], item["position"], item["lag"]) for item in consumers]
        screen.print(table(f"log: {answer['head']} events", ("reader", ">position", ">behind"), readers))
    if backlog := [item for item in answer.get("backlog", ()) if max(item["waiting"], item["on_bus"]) >= BACKLOG_SHOWN_MIN]:
        lanes = [(item["agent_id"], item["lane"], item["waiting"], item["on_bus"]) for item in backlog[:BACKLOG_SHOWN_MAX]]
        screen.print(table("reports that wait for the record", ("agent", "lane", ">with the agent", ">on the bus"), lanes))
    if not answer.get("bus", {"ok": True})["ok"]:
        say(f"bus: {answer['bus']['message']}")
    if "slots" in answer:
        say(f"agents: {answer['agents']}, slots: {answer['slots_used']} of {answer['slots']} used, parked: {answer['parked']}")
    if told := _door(answer.get("door")):
        say(told)
    for item in answer.get("webhooks", ()):
        why = f"; its target: {item['answer']}" if item["answer"] else ""
        say(f"webhook {item['name']}: {item['waiting']} notices wait, {item['parked']} are parked{why}")
    for item in answer.get("automations", ()):
        why = f"; {item['problem']}" if item["problem"] else ""
        say(f"automation {item['name']} ({item['state']}): {item['parked']} events are parked{why}")
    for item in answer.get("silent_trials", ()):
        say(f"trial {item['trial_id']} has reported nothing for {seconds(item['silent_seconds'])}; it may hang")
    if "error" in answer:
        say(answer["error"])


def _door(door: dict[str, Any] | None) -> str:
    """Requests that wait at the REST door, in a line; empty without a door."""
    if door is None:
        return ""
    busy = [f"{item['whose']} {item['under_way']}" for item in door["requests"] if item["under_way"] >= REQUESTS_SHOWN_MIN]
    told = f"REST: {door['connections']} of {door['connections_max']} connections"
    told += f", requests under way: {', '.join(busy)} (at most {door['requests_max']} each)" if busy else ""
    told += f", {door['gave_way']} connections gave way to others" if door["gave_way"] else ""
    return told + (f", {door['turned_away']} were turned away" if door["turned_away"] else "")


def migrate() -> None:
    """Bring an external database to this version's schema (`up` does it by itself). Needs TENUTO_DATABASE_OWNER_URL."""
    import asyncio

    import asyncpg

    from tenuto.kernel.migrations import MigrationError
    from tenuto.kernel.migrations import migrate as apply
    from tenuto.kernel.settings import Settings

    url = Settings.from_environment().database_owner_url
    if not url:
        raise CliError("TENUTO_DATABASE_OWNER_URL is not set: give the URL of the database, as its owner.")
    try:
        applied = asyncio.run(apply(url))
    except MigrationError as error:
        raise CliError(f"The database was not migrated: {error}") from error
    except (OSError, asyncpg.PostgresError) as error:
        raise CliError(f"The database cannot be used: {error}.") from error
    say("\n".join(f"applied {name}" for name in applied) or "The database is up to date.")
