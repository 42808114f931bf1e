"""exp replay."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import ExperimentId, Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

if TYPE_CHECKING:
    from tenuto.cli.replay import ServiceVerdict
    from tenuto.client.blocking.client import Client

EXIT_DIVERGED = 3
DIVERGENCES_SHOWN_MAX = 5


def replay(
    context: typer.Context,
    experiment: ExperimentId,
    at: Annotated[
        int | None, typer.Option(metavar="POSITION", help="Show the experiment as it was at this log position.", min=1)
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Take every decision again and compare it with the record.")] = False,
    whole: Annotated[
        bool | None,
        typer.Option(
            "--whole/--own",
            help="Read the whole log and replay every service, or the experiment's own events, and search and trials alone "
            "(default: the whole of a log of up to 20,000 events).",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Rebuild an experiment from its record alone, on this machine."""
    from tenuto.cli.replay import WHOLE_EVENTS_MAX

    rest = client(context)
    rest.get(f"/experiments/{experiment}")  # says so at once if there is no such experiment
    upto = at or rest.get("/status")["head"]
    whole = upto <= WHOLE_EVENTS_MAX if whole is None else whole
    if verify:
        _verify(rest, experiment, upto, json, whole)
    else:
        _state(rest, experiment, upto, json, whole)


def _verify(rest: Client, experiment: int, upto: int, json: bool, whole: bool) -> None:
    from tenuto.cli.output import console, print_json, table
    from tenuto.cli.replay import fetch, undecidable, verify

    events = fetch(rest, upto, None if whole else experiment)
    verdicts = verify(events, experiment, whole=whole)
    if not whole and not all(item.verdict.ok for item in verdicts):
        # Another experiment may have had a part in it, such as one that began from a checkpoint of this one.
        say("What differs may follow from other experiments: the whole log is read.", file=sys.stderr)
        whole, events = True, fetch(rest, upto)
        verdicts = verify(events, experiment)
    left_out = undecidable(events)
    ok = all(item.verdict.ok for item in verdicts) and experiment not in left_out
    answer = {
        "ok": ok,
        "events": len(events),
        "whole": whole,
        "head": events[-1].position if events else 0,
        "services": {item.service: _plain(item) for item in verdicts},
        **({"left_out": left_out} if left_out else {}),
    }
    if json:
        print_json(answer)
    else:
        columns = ("service", ">rules", ">inputs", ">decisions", ">from commands", ">of this experiment", "verdict")
        rows = [
            (
                item.service,
                item.rule_version,
                item.verdict.inputs,
                item.verdict.decisions,
                item.verdict.from_commands,
                item.of_experiment,
                _verdict(item, experiment in left_out),
            )
            for item in verdicts
        ]
        console().print(table("", columns, rows))
        for item in verdicts:
            for divergence in item.verdict.divergences[:DIVERGENCES_SHOWN_MAX]:
                say(f"{item.service}: {divergence}")
        if ok:
            decisions = sum(item.verdict.decisions for item in verdicts)
            say(f"Replay of {len(events)} events: {decisions} decisions taken again, all as recorded.")
        if not whole:
            say("These are the experiment's own events. Scheduler and launcher decide over all experiments: `--whole` adds them.")
    if not all(item.verdict.ok for item in verdicts):
        raise CliError("The record does not replay: at least one decision differs from what was recorded.", EXIT_DIVERGED)
    if not ok:
        raise CliError(f"The search of experiment {experiment} cannot be decided again here. {left_out[experiment]}")


def _verdict(item: ServiceVerdict, left_out: bool) -> str:
    if not item.verdict.ok:
        return "DIFFERENT"
    return "not decided again" if left_out and item.service == "searcher" else "as recorded"


def _plain(item: ServiceVerdict) -> dict[str, Any]:
    return {"rule_version": item.rule_version, "of_experiment": item.of_experiment, "ok": item.verdict.ok, **asdict(item.verdict)}


def _state(rest: Client, experiment: int, upto: int, json: bool, whole: bool) -> None:
    from tenuto.cli.experiment_story import Story
    from tenuto.cli.follow import view
    from tenuto.cli.output import console, print_json
    from tenuto.cli.replay import digests, fetch

    story = Story(experiment)
    for body in rest.event_bodies(upto=upto, experiment=experiment):
        story.fold(json_module.loads(body))
    if not story.position:
        raise CliError(f"Experiment {experiment} was not submitted yet at position {upto}.")
    states = digests(fetch(rest, upto, None if whole else experiment), upto, whole=whole)
    best = story.best
    if json:
        shown = {**asdict(story), "best_trial_id": best.id if best else None, "at": upto, "states": states, "whole": whole}
        print_json(shown)
        return
    say(f"At position {upto}:")
    screen = console()
    screen.print(view(story, screen.width))
    for service, digest in states.items():
        say(f"state of {service:<10} sha256 {digest}" + ("" if whole else " (of this experiment)"))
