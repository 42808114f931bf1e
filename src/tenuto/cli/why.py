"""exp why: the reason of each decision about a trial, from the record."""

from __future__ import annotations

import json as json_module
from typing import Any

import typer

from tenuto.cli.common import Json, TrialId, client
from tenuto.cli.errors import CliError

SAID = {
    "TrialRequested": "started",
    "TrialExtended": "goes on",
    "TrialPaused": "waits",
    "TrialStopped": "stopped",
}


def why(context: typer.Context, trial: TrialId, json: Json = False) -> None:
    """Say why the search started, promoted, paused or stopped a trial: one sentence per decision, with the numbers compared."""
    from tenuto.cli.output import console, print_json, table, when

    experiment, dash, number = trial.partition("-")
    if not (dash and experiment.isdigit() and number.isdigit()):
        raise CliError(f"{trial} is not the id of a trial: it is experiment and number, such as 3-7.")
    found: list[dict[str, Any]] = []
    for body in client(context).events(experiment=int(experiment)):
        event = json_module.loads(body)
        if event["type"] in SAID and event["data"]["trial_id"] == trial:
            found.append(event)
    if not found:
        raise CliError(f"There is no trial {trial}; `tenuto exp describe {experiment}` lists those of the experiment.")
    if json:
        keep = ("position", "time_us", "type", "data")
        print_json([{name: event[name] for name in keep} for event in found])
        return
    rows = [
        (event["position"], when(event["time_us"]), SAID[event["type"]], sentence(event["data"]), event["data"]["reason"]["rule"])
        for event in found
    ]
    console().print(table(f"trial {trial}", (">position", "time", "what", "why", "rule"), rows))


def sentence(data: dict[str, Any]) -> str:
    text = str(data["reason"]["text"])
    if data.get("parent_trial_id") and data["parent_trial_id"] not in text:
        text += f" Copied from trial {data['parent_trial_id']}."
    return text
