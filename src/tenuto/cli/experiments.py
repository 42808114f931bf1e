"""exp create, ls, describe, logs, metrics, pause, resume, cancel, kill, wait, replay, download, and changes of priority."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.cli import curves
from tenuto.cli.changing import change
from tenuto.cli.checkpoints import Output, fetch
from tenuto.cli.common import At, ExperimentId, Json, client
from tenuto.cli.descriptions import archive, delete, label, note, rename, unarchive, undelete
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.exit_status import follow_to_end
from tenuto.cli.exporting import export
from tenuto.cli.lineage import lineage
from tenuto.cli.local import Local, Record, Test, run_here
from tenuto.cli.logs import Level, Rank, Text, show_logs
from tenuto.cli.merging import Template, read_merged, read_text, tell_plan
from tenuto.cli.overrides import Settings as Overrides
from tenuto.cli.pareto import pareto
from tenuto.cli.preview import preview
from tenuto.cli.replay_commands import replay
from tenuto.cli.reproduce import fork, go_on, reproduce, reproduction
from tenuto.cli.say import say
from tenuto.cli.search import own_search, run_search
from tenuto.cli.why import why
from tenuto.client.messages import items

app = typer.Typer(no_args_is_help=True)
app.command()(replay)
app.command()(reproduce)
app.command()(reproduction)
app.command()(fork)
app.command("continue")(go_on)
app.command("set")(change)
for _command in (rename, label, note, archive, unarchive, delete, undelete):
    app.command()(_command)
app.command()(preview)
app.command()(why)
app.command()(lineage)
app.command()(pareto)
app.command()(export)

ENDED = ("completed", "failed", "canceled")
PAGE_EXPERIMENTS = 1_000
AWAITED_MAX = 5
"""Trials that are named of those that something waits for."""


@app.command()
def create(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="Configuration (YAML).")],
    directory: Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="Directory with your code.")] = Path(),
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show the trials live until the experiment has ended.")] = False,
    overrides: Overrides = [],  # noqa: B006 - typer copies it
    template: Template = None,
    searcher: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:CLASS", help="Your own search (searcher.name: custom): run it here until the experiment ends."
        ),
    ] = None,
    local: Local = False,
    test: Test = False,
    record: Record = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key again gives the same experiment: for a pipeline that may run a step twice.")
    ] = None,
    json: Json = False,
) -> None:
    """Submit an experiment: a configuration and the directory with the model's code. With --local its first trial trains here."""
    import tempfile

    from tenuto.cli.image_notes import note_if_no_node_runs_it
    from tenuto.cli.jobs import note_if_too_large
    from tenuto.cli.origin import origin
    from tenuto.cli.overrides import read_overrides
    from tenuto.client.packing import check_entrypoint, pack
    from tenuto.kernel.settings import Settings

    if local or test or record is not None:
        if not local:
            raise UsageError("--test and --record are for a trial in the foreground: give --local, too.")
        others = {"--follow": follow, "--searcher": searcher, "--json": json, "--record": test and record, "--template": template}
        run_here(config, directory, overrides, test=test, record=record, others=others)
    changes = read_overrides(overrides) | ({"template": template} if template is not None else {})
    text = read_text(config, changes, ", then MODEL_DIR")
    parsed = read_merged(context, config, text)
    check_entrypoint(directory, parsed.entrypoint)
    kind = own_search(searcher, parsed.searcher.name, follow=follow)
    with tempfile.TemporaryFile() as archive:
        packed = pack(directory, archive, Settings.from_environment().context_bytes_max)
        archive.seek(0)
        rest = client(context)
        answer = rest.submit(text, archive, packed.size_bytes, origin(directory, changes).to_json(), key=idempotency_key)
    if json:
        from tenuto.cli.output import print_json

        print_json(answer)
    else:
        say(f"Experiment {answer['id']} is submitted ({packed.files} files, {packed.size_bytes / 1e3:.1f} kB).", flush=True)
        tell_plan(answer, text)
        pools = (parsed.resources.pool, *parsed.resources.fallback_pools)
        if not note_if_no_node_runs_it(rest, pools, parsed.environment):
            note_if_too_large(rest, parsed.resources, parsed.environment.image)
    if kind is not None:
        assert searcher is not None
        run_search(rest, kind, searcher, answer["id"], quiet=json)
    elif follow:
        follow_to_end(rest, answer["id"], quiet=json)


def marks(row: dict[str, Any]) -> list[str]:
    """Marks of an experiment beside its state, such as `archived`."""
    known = {"archived": "archived", "deletion_due_us": "to be deleted", "deleted_us": "deleted"}
    return [said for name, said in known.items() if row.get(name)]


@app.command("ls")
def list_experiments(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(help="Part of the name.")] = None,
    label: Annotated[str | None, typer.Option(help="Only experiments that have this label.")] = None,
    user: Annotated[str | None, typer.Option(help="Only experiments of this user.")] = None,
    state: Annotated[str | None, typer.Option(help="Only experiments in this state, such as completed.")] = None,
    hyperparameter: Annotated[
        str | None, typer.Option("--hp", help="Conditions on one of its trials, such as 'lr>=0.001,lr<0.1,optimizer=adam'.")
    ] = None,
    metric_above: Annotated[float | None, typer.Option(help="Only where the best metric is larger.")] = None,
    metric_below: Annotated[float | None, typer.Option(help="Only where the best metric is smaller.")] = None,
    sort: Annotated[str, typer.Option(help="id, name, user, state, ended or metric.")] = "id",
    ascending: Annotated[bool, typer.Option("--ascending", help="The smallest first.")] = False,
    limit: Annotated[int, typer.Option(help="Most experiments to list.", min=1)] = 100,
    archived: Annotated[bool, typer.Option("--archived", help="Archived experiments, too.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted experiments, too.")] = False,
    workspace: Annotated[str | None, typer.Option("--workspace", "-w", help="Only those of this workspace.")] = None,
    project: Annotated[str | None, typer.Option("--project", "-p", help="Only those of this project; empty: of none.")] = None,
    parent: Annotated[int | None, typer.Option(help="Only those that were made from this experiment.")] = None,
    json: Json = False,
) -> None:
    """List experiments, the newest first. What is given must all hold."""
    from itertools import chain, islice

    from tenuto.cli.output import print_json, show_rows, when

    given = {
        "name": name, "label": label, "user": user, "workspace": workspace, "project": project, "state": state,
        "hyperparameter": hyperparameter, "metric_above": metric_above, "metric_below": metric_below, "parent": parent,
        "archived": "true" if archived else None, "deleted": "true" if deleted else None,
    }  # fmt: skip
    pages = client(context).pages(
        "/experiments", **given, sort=sort, order="asc" if ascending else "desc", limit=min(limit, PAGE_EXPERIMENTS)
    )
    rows = list(islice(chain.from_iterable(pages), limit))
    if json:
        print_json(rows)
        return
    cells = [
        (
            row["id"],
            row["name"],
            ", ".join((row["state"], *marks(row))),
            row["method"],
            sum(row["trials"].values()),
            row["metric"],
            row["best_metric"],
            when(row["submitted_us"]),
        )
        for row in rows
    ]
    show_rows(
        (">id", "name", "state", "search", ">trials", "metric", ">best", "submitted"),
        cells,
        "No experiment fits."
        if any(value is not None for value in given.values())
        else "No experiments yet: `tenuto exp create` submits one.",
    )


@app.command()
def describe(
    context: typer.Context,
    experiment: ExperimentId,
    at: At = None,
    json: Json = False,
    plot: curves.Plot = False,
    metric: curves.Metric = None,
    log: curves.Logarithmic = False,
) -> None:
    """Show an experiment with its trials and its best checkpoint; with --plot also the curves of its best trials."""
    from tenuto.cli.describe import best_first, experiment_view
    from tenuto.cli.jobs import waiting_for
    from tenuto.cli.output import console, print_json

    curves.check(plot, metric, log, json)
    if at is not None and plot:
        raise UsageError("--plot shows the curves of now: training metrics are not in the log. Leave out --at or --plot.")
    rest = client(context)
    view = rest.get(f"/experiments/{experiment}", at=at)
    trials = items(rest.get(f"/experiments/{experiment}/trials", at=at))
    best = view.get("best_checkpoint_id") if at is None else None
    checkpoint = rest.get(f"/checkpoints/{best}") if best else None
    damaged = [] if at is not None else items(rest.get("/checkpoints", experiment=experiment, damaged="true", deleted="true"))
    if json:
        now = {} if at is not None else {"best_checkpoint": checkpoint, "damaged_checkpoints": damaged}
        print_json({**view, "trial_list": trials, **now})
        return
    screen = console()
    waits = waiting_for(rest, experiment) if view["state"] == "active" and at is None else ""
    screen.print(experiment_view(view, trials, checkpoint, screen.width, damaged, waits))
    if plot:
        curves.show(screen, curves.of_experiment(rest, view, best_first(view, trials), metric), log=log)


@app.command()
def logs(
    context: typer.Context,
    experiment: ExperimentId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines, too, until the experiment has ended.")] = False,
    text: Text = None,
    rank: Rank = None,
    level: Level = None,
    json: Json = False,
) -> None:
    """Show what the workers of all its trials wrote."""
    rest = client(context)

    def ended() -> bool:
        return rest.get(f"/experiments/{experiment}")["state"] in ENDED

    show_logs(rest, f"/experiments/{experiment}/logs", follow=follow, json=json, ended=ended, text=text, rank=rank, level=level)


@app.command()
def metrics(
    context: typer.Context,
    experiment: ExperimentId,
    trial: Annotated[str | None, typer.Option("--trial", "-t", help="Only of this trial, such as 3-7.")] = None,
    json: Json = False,
) -> None:
    """Show training metrics."""
    from tenuto.cli.output import print_json, show_rows

    path = f"/trials/{trial}/metrics" if trial else f"/experiments/{experiment}/metrics"
    points = items(client(context).get(path))
    if json:
        print_json(points)
        return
    names = sorted({name for point in points for name in point["metrics"]})
    cells = [(point["trial_id"], point["batches"], *(point["metrics"].get(name) for name in names)) for point in points]
    show_rows(("trial", ">batches", *(f">{name}" for name in names)), cells, "No training metrics were reported yet.")


def _change(context: typer.Context, experiment: int, verb: str, done: str) -> None:
    answer = client(context).post(f"/experiments/{experiment}/{verb}")
    changed = not isinstance(answer, dict) or answer.get("changed", True)
    say(f"Experiment {experiment} {done}." if changed else f"Experiment {experiment} is in that state already: nothing changed.")
    if isinstance(answer, dict):
        for line in awaited(answer):
            say(line)


def awaited(answer: dict[str, Any]) -> list[str]:
    """Workers that must leave before the request is done, and the time at which remaining ones are killed."""
    from tenuto.cli.output import seconds, when

    workers = answer.get("waits_for") or []
    lines = []
    for item in workers[:AWAITED_MAX]:
        silent = item["silent_seconds"]
        said = "has not begun" if silent is None else f"last reported something {seconds(silent)} ago"
        lines.append(f"It waits for trial {item['trial_id']} on {', '.join(item['agent_ids'])}, which {said}.")
    if len(workers) > AWAITED_MAX:
        lines.append(f"And for {len(workers) - AWAITED_MAX} more.")
    if workers:
        lines.append(f"Workers that have not left by {when(answer['killed_at_us'])} are killed.")
    return lines


@app.command()
def pause(context: typer.Context, experiment: ExperimentId) -> None:
    """Save and stop its workers; its slots are free for others until it is resumed."""
    _change(context, experiment, "pause", "pauses: its workers save a checkpoint and leave")


@app.command()
def resume(context: typer.Context, experiment: ExperimentId) -> None:
    """Go on with a paused experiment from its checkpoints."""
    _change(context, experiment, "resume", "goes on")


@app.command()
def cancel(context: typer.Context, experiment: ExperimentId) -> None:
    """End it; running workers save a checkpoint first."""
    _change(context, experiment, "cancel", "is being canceled: its workers save a checkpoint and leave")


@app.command()
def kill(context: typer.Context, experiment: ExperimentId) -> None:
    """End it at once, without a last checkpoint."""
    _change(context, experiment, "kill", "is being killed")


@app.command()
def wait(
    context: typer.Context,
    experiment: ExperimentId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show the trials live.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Give up after so many seconds; the experiment goes on.", min=0)] = None,
    json: Json = False,
) -> None:
    """Return when the experiment has ended: status 0 if it completed, 2 if it failed or was canceled, 4 if it goes on after
    --timeout."""
    rest = client(context)
    view = rest.wait_get(f"/experiments/{experiment}")  # says so at once if there is no such experiment
    if view["state"] == "unmanaged":
        raise CliError(f"Experiment {experiment} has unmanaged runs, and no end: their programs end them one by one.")
    follow_to_end(rest, experiment, quiet=json or not follow, timeout_seconds=timeout)
    if json:
        from tenuto.cli.output import print_json

        print_json(rest.wait_get(f"/experiments/{experiment}"))


@app.command()
def download(context: typer.Context, experiment: ExperimentId, output: Output = None) -> None:
    """Copy the files of its best checkpoint into a directory."""
    rest = client(context)
    best = rest.get(f"/experiments/{experiment}").get("best_checkpoint_id")
    if not best:
        raise CliError(f"Experiment {experiment} has no checkpoint yet.")
    say(fetch(rest, best, output))
