"""exp lineage: who was copied from whom, in a population-based search or one of the user's own."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from typing import Any

import typer

from tenuto.cli.common import ExperimentId, Json, client
from tenuto.cli.say import say
from tenuto.client.messages import items


def lineage(context: typer.Context, experiment: ExperimentId, json: Json = False) -> None:
    """Show which trials are copies of others (pbt, or a search of your own): from which checkpoint, and what was changed."""
    from tenuto.cli.output import console, print_json, table

    rest = client(context)
    trials = {trial["id"]: trial for trial in items(rest.get(f"/experiments/{experiment}/trials"))}
    born: dict[str, dict[str, Any]] = {}
    for body in rest.event_bodies(experiment=experiment):
        event = json_module.loads(body)
        if event["type"] == "TrialRequested":
            born[event["data"]["trial_id"]] = event["data"]
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
    right behind it. `born`: the data of TrialRequested, in order."""
    from tenuto.cli.output import flat

    copies: dict[str | None, list[str]] = {}
    for trial, data in born.items():
        parent = data.get("parent_trial_id")
        copies.setdefault(parent if parent in born else None, []).append(trial)
    waiting = [(0, trial) for trial in reversed(copies.get(None, ())) if trial in copies]
    while waiting:
        depth, trial = waiting.pop()
        data, changed = born[trial], {}
        if depth:
            mine, theirs = flat(data["hyperparameters"]), flat(born[data["parent_trial_id"]]["hyperparameters"])
            names = dict.fromkeys([*theirs, *mine])
            changed = {name: (theirs.get(name), mine.get(name)) for name in names if theirs.get(name) != mine.get(name)}
        yield (
            depth,
            {
                "trial_id": trial,
                "parent_trial_id": data.get("parent_trial_id"),
                "source_checkpoint_id": data.get("source_checkpoint_id"),
                "hyperparameters": data["hyperparameters"],
                "changed": changed,
            },
        )
        waiting += [(depth + 1, copy) for copy in reversed(copies.get(trial, ()))]


def _shown(value: Any) -> str:
    from tenuto.cli.output import plain

    return "(not in use)" if value is None else plain(value)
