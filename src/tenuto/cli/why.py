"""exp why: the reason of each decision about a trial, from the record."""

from __future__ import annotations

import json as json_module
from typing import Any

import typer

from tenuto.cli.common import Json, TrialId, client
from tenuto.cli.errors import CliError

NO_CUT_OFF_RULES = ("asha.finalist",)
"""Rules whose recorded cut-off decided nothing: they compare the trial with no other."""
SAID = {
    "TrialRequested": "started",
    "TrialExtended": "goes on",
    "TrialPaused": "waits",
    "TrialStopped": "stopped",
    "StragglerNoticed": "is slow",
}


def why(context: typer.Context, trial: TrialId, json: Json = False) -> None:
    """Say why the search started, promoted, paused or stopped a trial, and which of its ranks held it up: one sentence each,
    with the numbers compared."""
    from tenuto.cli.output import console, print_json, table, when

    experiment, dash, number = trial.partition("-")
    if not (dash and experiment.isdigit() and number.isdigit()):
        raise CliError(f"{trial} is not the id of a trial: it is experiment and number, such as 3-7.")
    found: list[dict[str, Any]] = []
    for body in client(context).event_bodies(experiment=int(experiment)):
        event = json_module.loads(body)
        if event["type"] in SAID and event["data"]["trial_id"] == trial:
            found.append(event)
    if not found:
        raise CliError(f"There is no trial {trial}; `tenuto exp describe {experiment}` lists those of the experiment.")
    if json:
        keep = ("position", "time_us", "type", "data")
        print_json([{name: event[name] for name in keep} | {"sentence": event.get("sentence", "")} for event in found])
        return
    rows = [(event["position"], when(event["time_us"]), SAID[event["type"]], told(event), rule(event["data"])) for event in found]
    console().print(table(f"trial {trial}", (">position", "time", "what", "why", "rule"), rows))


def rule(data: dict[str, Any]) -> str:
    """Facts follow no rule."""
    return str(data["reason"]["rule"]) if "reason" in data else ""


def straggler(data: dict[str, Any]) -> str:
    own, usual = float(data["own_seconds"]), float(data["usual_seconds"])
    return (
        f"rank {data['rank']} of {data['slots']} on agent {data['agent_id']} is {own / usual:.1f} times as slow as the others "
        f"({1000 * own:.0f} ms against {1000 * usual:.0f} ms a step) in run {data['allocation_id']}"
    )


def told(event: dict[str, Any]) -> str:
    """The decision's sentence, with the value that the trial was compared with where that leaves it out."""
    data = event["data"]
    if "reason" not in data:
        return straggler(data)
    reason, numbers = data["reason"], data["reason"]["numbers"]
    text = str(event["sentence"])
    cut_off, top = numbers.get("cut_off"), numbers.get("top")
    if cut_off is not None and top != numbers.get("rank"):
        # Where the value did not decide, it still tells how far the trial was from those that were better then.
        bound = reason["rule"] not in NO_CUT_OFF_RULES
        text += f" The cut-off was {cut_off:.6g} (rank {top})." if bound else f" Rank {top} had {cut_off:.6g} then."
    if data.get("parent_trial_id") and data["parent_trial_id"] not in text:
        text += f" Copied from trial {data['parent_trial_id']}."
    return text
