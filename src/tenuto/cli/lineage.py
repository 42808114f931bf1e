"""exp lineage: who was copied from whom, in a population-based search or one of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from tenuto.cli.common import At, ExperimentId, Json, client
from tenuto.cli.say import say
from tenuto.client.messages import items


def lineage(context: typer.Context, experiment: ExperimentId, at: At = None, json: Json = False) -> None:
    """Show which trials are copies of others (pbt, or a search of your own): from which checkpoint, and what was changed."""
    from tenuto.cli.output import console, print_json, table

    rest = client(context)
    trials = {trial["id"]: trial for trial in items(rest.get(f"/experiments/{experiment}/trials", at=at))}
    born = {trial["trial_id"]: trial for trial in rest.get(f"/experiments/{experiment}/lineage", at=at)["trials"]}
    found = list(descent(born))
    if json:
        print_json([entry | {"depth": depth} for depth, entry in found])
        return
    if not found:
        say(f"No trial of experiment {experiment} is a copy of another one.")
        return
    rows = []
    for depth, entry in found:
        trial = trials.get(entry["trial_id"], {})
        changed = ", ".join(f"{name} {_shown(before)} -> {_shown(now)}" for name, (before, now) in entry["changed"].items())
        mark = "  " * (depth - 1) + "└ " if depth else ""
        rows.append(
            (
                mark + entry["trial_id"],
                entry["source_checkpoint_id"] or "",
                changed,
                trial.get("length"),
                trial.get("best_metric"),
                trial.get("state", ""),
            )
        )
    columns = ("trial", "begun from", "changed", ">length", ">best metric", "state")
    console().print(table(f"copies in experiment {experiment}", columns, rows))
    alone = len(born) - len(found)
    if alone:
        say(f"{alone:,} other trial{'s were' if alone != 1 else ' was'} neither copied nor a copy.")


def descent(born: dict[str, dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Depth and entry of each trial that was copied or is a copy: first a family's oldest, then its copies, each with its own
    right behind it. `born`: trials as `GET .../lineage` has them, by id, in order."""
    copies: dict[str | None, list[str]] = {}
    for trial, entry in born.items():
        parent = entry["parent_id"]
        copies.setdefault(parent if parent in born else None, []).append(trial)
    waiting = [(0, trial) for trial in reversed(copies.get(None, ())) if trial in copies]
    while waiting:
        depth, trial = waiting.pop()
        entry = born[trial]
        yield (
            depth,
            {
                "trial_id": trial,
                "parent_trial_id": entry["parent_id"],
                "source_checkpoint_id": entry["source_checkpoint_id"],
                "hyperparameters": entry["hyperparameters"],
                "changed": {change["name"]: (change["before"], change["after"]) for change in entry["changed"] if depth},
            },
        )
        waiting += [(depth + 1, copy) for copy in reversed(copies.get(trial, ()))]


def _shown(value: Any) -> str:
    from tenuto.cli.output import plain

    return "(not in use)" if value is None else plain(value)
