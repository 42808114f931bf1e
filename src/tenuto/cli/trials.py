"""trial describe, trial logs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenuto.cli import curves
from tenuto.cli.common import Json, TrialId, client
from tenuto.cli.diff import record
from tenuto.cli.logs import Level, Rank, Text, show_logs
from tenuto.cli.say import say
from tenuto.cli.why import straggler
from tenuto.client.messages import items

app = typer.Typer(no_args_is_help=True)
app.command()(record)


@app.command()
def describe(
    context: typer.Context,
    trial: TrialId,
    json: Json = False,
    plot: curves.Plot = False,
    metric: curves.Metric = None,
    log: curves.Logarithmic = False,
) -> None:
    """Show a trial: hyperparameters, progress, validations, checkpoints, and why the search decided as it did; with --plot also
    its curve."""
    from tenuto.cli.checkpoints import damages
    from tenuto.cli.jobs import waits
    from tenuto.cli.output import console, print_json, size, table, when

    curves.check(plot, metric, log, json)
    rest = client(context)
    view = rest.get(f"/trials/{trial}")
    validations = items(rest.get(f"/trials/{trial}/validations"))
    checkpoints = items(rest.get("/checkpoints", trial=trial))
    if json:
        print_json({**view, "validations": validations, "checkpoints": checkpoints})
        return
    screen = console()
    rows = _facts(view)
    if view.get("excluded_agents"):
        rows.append(("not placed again on", ", ".join(view["excluded_agents"])))
    rows += presence(view)
    if view["state"] == "queued":
        rows += [("waits", line) for line in waits(rest, int(trial.partition("-")[0]))]
    rows += [("slow", straggler(item)) for item in view.get("stragglers") or ()]
    rows += [("not exact", sentence) for sentence in view.get("breaks") or ()]
    if view.get("error"):
        rows.append(("error", view["error"]))
    screen.print(table(f"trial {trial}", ("", ""), rows))
    if validations:
        cells = [(item["batches"], item["length"], item["metrics"]) for item in validations]
        screen.print(table("validations", (">batches", ">length", "metrics"), cells))
    if checkpoints:
        kept = [
            (item["id"], item["batches"], item["metric"], size(item["size_bytes"]), when(item["saved_us"]))
            for item in checkpoints
        ]
        screen.print(table("checkpoints", ("checkpoint", ">batches", ">metric", ">size", "saved"), kept))
        for line in damages(checkpoints):
            say(line)
    if plot:
        curves.show(screen, curves.of_trial(rest, view, metric), log=log)


def _facts(view: dict[str, Any]) -> list[tuple[str, Any]]:
    from tenuto.cli.output import duration, when

    if view.get("unmanaged"):
        return [
            ("state", f"{view['state']}, unmanaged: {view['reason'][0].lower()}{view['reason'][1:]}"),
            ("steps", view["batches"]),
            ("hyperparameters", view["hyperparameters"]),
            ("started", when(view["requested_us"])),
            ("took", duration(view["requested_us"], view["ended_us"])),
        ]
    return [
        ("state", view["state"]),
        ("progress", f"{view['length']} of {view['target_length']}"),
        ("hyperparameters", view["hyperparameters"]),
        ("seed", view["seed"]),
        ("best metric", view["best_metric"]),
        ("allocations", view["allocations"]),
        ("failures", view["failures"]),
        ("last decision", view["reason"]),
        ("requested", when(view["requested_us"])),
        ("took", duration(view["requested_us"], view["ended_us"])),
    ]


def presence(view: dict[str, Any]) -> list[tuple[str, str]]:
    """Times at which its workers last reported, since which they are to exit, or at which it restarts."""
    from tenuto.cli.output import seconds, when

    rows = []
    if view.get("silent_seconds") is not None:
        rows.append(("last reported something", f"{seconds(view['silent_seconds'])} ago"))
    if view.get("leaving_us"):
        rows.append(("told to leave", f"{when(view['leaving_us'])}; workers that do not leave in time are killed"))
    if view.get("restart_at_us"):
        why = f"after {view['setbacks']} starts in a row with nothing new saved or validated"
        rows.append(("starts again", f"{when(view['restart_at_us'])}, {why}; `tenuto exp pause` and `resume` start it at once"))
    return rows


@app.command()
def logs(
    context: typer.Context,
    trial: TrialId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines, too, until the trial has ended.")] = False,
    text: Text = None,
    rank: Rank = None,
    level: Level = None,
    json: Json = False,
) -> None:
    """Show what a trial's workers wrote."""
    rest = client(context)

    def ended() -> bool:
        return rest.get(f"/trials/{trial}")["ended_us"] is not None

    show_logs(rest, f"/trials/{trial}/logs", follow=follow, json=json, ended=ended, text=text, rank=rank, level=level)
