"""The command `tenuto`. Each module of commands imports what it needs inside its functions: `--help` must be quick."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import tenuto
from tenuto.cli import (
    agents,
    automation,
    check,
    checkpoints,
    cluster,
    credentials,
    diff,
    experiments,
    imports,
    jobs,
    joining,
    json_lines,
    log,
    nodes,
    page,
    plugins,
    roles,
    runs,
    search,
    secrets,
    sign_in,
    sim_app,
    sim_cluster,
    slots,
    stores,
    templates,
    trials,
    upkeep,
    users,
    webhooks,
    workspaces,
)
from tenuto.cli.errors import EXIT_USAGE
from tenuto.cli.narrowing import narrowed
from tenuto.cli.say import say
from tenuto.client.errors import ClientError

EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="tenuto",
    help="Deep-learning training that keeps its place.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"tenuto {tenuto.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    data_dir: Annotated[
        str | None,
        typer.Option(help="Directory of the cluster on this machine (default: TENUTO_DATA_DIRECTORY, else ~/.tenuto)."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of a cluster elsewhere (default: TENUTO_URL).")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    context.obj = (data_dir, url)


cluster.add_to(app)
app.command()(check.check)
app.command()(diff.diff)
sign_in.add_to(app)
app.command()(page.page)
app.add_typer(experiments.app, name="exp", help="Experiments.")
app.add_typer(trials.app, name="trial", help="Trials: single configurations of an experiment.")
app.add_typer(checkpoints.app, name="ckpt", help="Checkpoints.")
app.add_typer(stores.app, name="store", help="Stores: where checkpoints may go.")
joining.add_to(agents.app)
credentials.add_to(agents.app)
app.add_typer(agents.app, name="agent", help="Agents: the machines that offer slots.")
app.add_typer(slots.slot_app, name="slot", help="Single slots of an agent.")
app.add_typer(runs.app, name="run", help="Runs that were made without a cluster.")
app.add_typer(imports.app, name="import", help="Come from elsewhere: what other platforms wrote, in the form of Tenuto.")
app.add_typer(jobs.app, name="job", help="The queue: who has slots, who waits, and why.")
app.add_typer(jobs.pool_app, name="pool", help="Pools: how they share their slots, and where their nodes come from.")
nodes.add_to(jobs.pool_app)
app.add_typer(nodes.app, name="node", help="Nodes: machines, pods and jobs that provisioners start.")
app.add_typer(jobs.share_app, name="share", help="Weights and quotas of workspaces and users.")
app.add_typer(secrets.app, name="secret", help="Secrets: values for workers that nobody reads.")
app.add_typer(webhooks.app, name="webhook", help="Webhooks: where notices are sent.")
app.add_typer(automation.app, name="automation", help="Automations: programs of yours that react to events.")
app.add_typer(users.app, name="user", help="Users: who may act with a token of their own.")
app.add_typer(workspaces.app, name="workspace", help="Workspaces: who works together and sees what.")
app.add_typer(workspaces.project_app, name="project", help="Projects: parts of a workspace.")
app.add_typer(templates.app, name="template", help="Templates: values that many configurations share.")
app.add_typer(roles.app, name="role", help="Roles: what users, groups and service accounts may do.")
app.add_typer(plugins.app, name="plugin", help="Plug-ins: what implements Tenuto's ports, of this and other packages.")
app.add_typer(search.app, name="search", help="Searches that a class of your own decides.")
sim_app.app.command("cluster")(sim_cluster.simulate)
app.add_typer(sim_app.app, name="sim", help="Simulate, with the code that decides in the real cluster.")
app.add_typer(log.events_app, name="event", help="The record of everything that happened.")
app.add_typer(upkeep.parked_app, name="parked", help="Events and reports that could not be handled.")
app.add_typer(upkeep.views_app, name="views", help="Read models: the tables behind lists and pages, built from the log.")
app.add_typer(log.app, name="log", help="The event log as a whole.")


def main() -> None:
    from tenuto.embedded.process import ServerError
    from tenuto.kernel.settings import SettingsError

    as_json = json_lines.wanted(sys.argv[1:])
    json_lines.UsageProblem.exit_code = EXIT_USAGE  # what is wrong in a command line is found and told by typer
    try:
        command = typer.main.get_command(narrowed(app, sys.argv[1:]))
        json_lines.add_to(command)
        ended = command.main(prog_name="tenuto", standalone_mode=not as_json)
        sys.exit(ended if isinstance(ended, int) else 0)
    except typer.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except json_lines.Problem as error:
        json_lines.tell(error.format_message(), error.exit_code)
        sys.exit(error.exit_code)
    except (ClientError, ServerError, SettingsError) as error:
        code = getattr(error, "exit_code", 1)
        if as_json:
            json_lines.tell(str(error), code, word=getattr(error, "word", ""), path=getattr(error, "path", ""))
        else:
            say(f"Error: {error}", file=sys.stderr)
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader (such as `head`) has seen enough. Nothing more may be flushed into the closed pipe at exit.
        sys.stdout = None  # type: ignore[assignment]
        sys.exit(0)


if __name__ == "__main__":
    main()
