"""exp pareto: the trials of a search with several metrics that no other one beats in all of them."""

from __future__ import annotations

import typer

from tenuto.cli.common import At, ExperimentId, Json, client


def pareto(context: typer.Context, experiment: ExperimentId, at: At = None, json: Json = False) -> None:
    """Show the Pareto front of a search with several metrics (nsga2)."""
    from tenuto.cli.output import compare, console, print_json, table

    view = client(context).get(f"/experiments/{experiment}/pareto", at=at)
    if json:
        print_json(view)
        return
    goals = [f">{goal['metric']} ({'smaller' if goal['smaller_is_better'] else 'larger'})" for goal in view["goals"]]
    screen = console()
    values = compare([trial["hyperparameters"] for trial in view["front"]], screen.width // 2, cut=False)
    rows = [
        (trial["trial_id"], trial["state"], *(trial["values"][goal["metric"]] for goal in view["goals"]), *cells)
        for trial, cells in zip(view["front"], values.rows, strict=True)
    ]
    title = f"{len(rows)} of {view['compared']} trials are beaten by no other one in all metrics"
    screen.print(table(title, ("trial", "state", *goals, *values.columns), rows))
