"""automation rules, run, ls, parked, redeliver, rm, replay, credentials, revoke."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli import automation_rules
from tenuto.cli.common import Json, client, data_dir_of
from tenuto.cli.credentials import UsersDirectory, tell_bus, users_of
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from tenuto.automation.sources import Source
    from tenuto.client.aio.client import AsyncClient
    from tenuto.client.target import Target

app = typer.Typer(no_args_is_help=True)
app.add_typer(automation_rules.app, name="rules", help="Rules that the cluster follows for all experiments of a workspace.")
Rules = Annotated[Path, typer.Argument(metavar="FILE", help="Python file with the rules, such as my_rules.py.")]
AppName = Annotated[str | None, typer.Option("--app", help="Name of the App, where the file has several.")]
Name = Annotated[str, typer.Argument(help="Name of the automation: its App's.")]
SHOWN_CHARACTERS = 90


@app.command()
def run(
    context: typer.Context,
    file: Rules,
    name: AppName = None,
    after: Annotated[
        int | None,
        typer.Option("--from", min=0, help="Position behind which rules begin that are new (default: the end of the log)."),
    ] = None,
) -> None:
    """Run the rules until SIGTERM or Ctrl-C; started again, each goes on behind its position. Events are read from NATS where
    TENUTO_NATS_USER is set (`tenuto automation credentials`), else from the REST door."""
    import asyncio

    from tenuto.automation.loading import load
    from tenuto.automation.running import run as run_app

    found = load(file, name)
    asyncio.run(run_app(found, _target(context), after=after, source=_source(), say=lambda text: say(text, flush=True)))


def _target(context: typer.Context) -> Target:
    from tenuto.client.target import Target

    data_dir, url = context.obj or (None, None)
    return Target.find(data_dir, url)


def _source() -> Any:
    from tenuto.kernel.settings import Settings

    settings = Settings.from_environment()
    if not settings.nats_user:
        return None
    settings.bus_password()  # says at once what is wrong

    def made(client: AsyncClient) -> Source:
        from tenuto.automation.sources import source_of

        return source_of(settings, client, say)

    return made


@app.command("ls")
def list_automations(context: typer.Context, json: Json = False) -> None:
    """Show automations, and how far each of their rules is."""
    from tenuto.cli.output import print_json, show_rows, when

    found = client(context).get("/automations")
    if json:
        print_json(found)
        return
    cells = [
        (
            item["name"],
            item["owner"],
            item["state"] if item["state"] == "running" else f"{item['state']}, last heard {when(item['seen_us'])}",
            rule["rule"],
            rule["position"],
            rule["behind"],
            rule["parked"],
            _short(f"{rule['problem']} ({rule['attempts']} attempts)" if rule["problem"] else ""),
        )
        for item in found
        for rule in item["rules"]
    ]
    columns = ("automation", "owner", "state", "rule", ">position", ">behind", ">parked", "problem")
    show_rows(columns, cells, "There are no automations.")


@app.command()
def parked(context: typer.Context, name: Name, json: Json = False) -> None:
    """Show events that its rules could not handle, with the reasons."""
    from tenuto.cli.output import print_json, show_rows, when

    found = client(context).get(f"/automations/{name}")["parked"]
    if json:
        print_json(found)
        return
    cells = [
        (
            item["number"],
            item["rule"],
            item["event_type"],
            item["position"],
            when(item["parked_us"]),
            item["retries"],
            _short(item["reason"]),
        )
        for item in found
    ]
    columns = (">number", "rule", "event", ">position", "parked", ">retries", "reason")
    show_rows(columns, cells, f"Automation {name} has parked nothing.")


@app.command("retry", hidden=True)
@app.command()
def redeliver(
    context: typer.Context,
    name: Name,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(metavar="[NUMBER...]", min=1, help="As `tenuto automation parked` shows them; none: all."),
    ] = None,
) -> None:
    """Deliver parked events again, by the process when it runs."""
    again = client(context).post(f"/automations/{name}/redeliver", {"numbers": numbers or []})["numbers"]
    if numbers and set(numbers) - set(again):
        missing = ", ".join(map(str, sorted(set(numbers) - set(again))))
        raise CliError(
            f"Automation {name} has no parked event {missing}: `tenuto automation parked {name}` shows those there are."
        )
    say(f"{len(again)} events of automation {name} are delivered again." if again else f"Automation {name} has parked nothing.")


@app.command("rm")
def remove(context: typer.Context, name: Name) -> None:
    """Forget an automation: its positions, and what it parked. Its process ends."""
    client(context).delete(f"/automations/{name}")
    say(f"Automation {name} is removed.")


@app.command()
def replay(
    context: typer.Context,
    file: Rules,
    after: Annotated[int, typer.Option("--from", min=0, help="Position behind which to begin.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Required: calls that change something are shown, not made.")
    ] = False,
    upto: Annotated[int | None, typer.Option("--upto", min=0, help="Last position (default: the end of the log).")] = None,
    name: AppName = None,
    json: Json = False,
) -> None:
    """Show what the rules would have done about past events. What they read is the cluster as it is now."""
    import asyncio

    from tenuto.automation.loading import load

    if not dry_run:
        raise CliError("A replay changes nothing, and says so: add --dry-run.")
    asyncio.run(_replay(load(file, name), _target(context), after, upto, json))


async def _replay(found: Any, target: Target, after: int, upto: int | None, as_json: bool) -> None:
    import dataclasses
    import json

    from tenuto.automation.replaying import replay as tried
    from tenuto.client.aio.client import AsyncClient

    events = calls = 0
    async with AsyncClient(target, patience_seconds=0.0) as asking:
        async for item in tried(found, asking, after, upto):
            events, calls = events + 1, calls + len(item.calls)
            if as_json:
                say(json.dumps(dataclasses.asdict(item)))
                continue
            about = f" of experiment {item.experiment_id}" if item.experiment_id else ""
            say(f"{item.rule}: {item.event_type}{about} at {item.position}")
            for call in item.calls:
                say(f"  would {call}")
            if item.end:
                say(f"  {item.end}")
    if not as_json:
        say(f"{events} events concern the rules; {calls} calls would have been made.")


@app.command()
def credentials(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The reader's name, such as the automation's.")],
    users: UsersDirectory = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write them to this file, which only you can read, not to the screen.")
    ] = None,
    renew: Annotated[bool, typer.Option(help="Make a new password; the old one is no longer valid.")] = False,
) -> None:
    """Print what a process logs in to the bus with to read events there, and for nothing else; made where there is none. Run it
    where the bus's users are kept."""
    from tenuto.kernel.bus_permissions import reader_user
    from tenuto.kernel.bus_users import BadUserName
    from tenuto.kernel.private_files import write_private

    found = users_of(context, users)
    try:
        before = found.readers()
        found.services()
        password = found.add_reader(name, renew=renew)
        lines = {"TENUTO_NATS_USER": reader_user(name), "TENUTO_NATS_PASSWORD": password}
        if users is None:
            lines |= _bus(context)
        text = "".join(f"{variable}={value}\n" for variable, value in lines.items())
        if output is not None:
            write_private(output.absolute(), text)
    except BadUserName as error:
        raise CliError(str(error)) from error
    except (OSError, ValueError) as error:
        raise CliError(f"The credentials of {name} could not be written: {error}.") from error
    if renew or name not in before:
        tell_bus(context, users)
    say(text, end="") if output is None else say(f"The credentials of {name} are in {output}, for you alone to read.")


def _bus(context: typer.Context) -> dict[str, str]:
    """Settings by which the bus of the cluster on this machine is reached. Raises OSError."""
    from tenuto.embedded.files import Layout

    layout = Layout.of(data_dir_of(context, None))
    url = (layout.nats / "url").read_text().strip()
    return {"TENUTO_NATS_URL": url} | (
        {"TENUTO_NATS_CA_FILE": str(layout.tls / "certificate.pem")} if url.startswith("tls:") else {}
    )


@app.command()
def revoke(
    context: typer.Context, name: Annotated[str, typer.Argument(help="The reader's name.")], users: UsersDirectory = None
) -> None:
    """Take a reader's credentials away: its connection to the bus ends at once."""
    try:
        removed = users_of(context, users).remove_reader(name)
    except (OSError, ValueError) as error:
        raise CliError(f"The credentials of {name} could not be removed: {error}.") from error
    if not removed:
        raise CliError(f"No reader named {name} has credentials.")
    tell_bus(context, users)
    say(f"Reader {name} no longer has credentials.")


def _short(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 3] + "..."
