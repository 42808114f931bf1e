"""exp reproduce, exp fork, exp continue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenuto.cli.common import ExperimentId, Json, client
from tenuto.cli.diff import metrics_sentence, show_differences, weights_sentence
from tenuto.cli.errors import CliError
from tenuto.cli.exit_status import EXIT_NOT_COMPLETED, follow_to_end
from tenuto.cli.merging import tell_plan
from tenuto.cli.overrides import OverridesFile, Settings, read_overrides
from tenuto.cli.say import say

EXIT_NOT_EQUAL = 3
"""The reproduction ended with other metrics or weights."""
Trust = Annotated[
    bool, typer.Option("--trust", help="Load objects pickled by another user's trials; they can run any code as yours.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Show the trials live until the experiment has ended.")]


def reproduce(
    context: typer.Context,
    experiment: ExperimentId,
    trial: Annotated[str | None, typer.Option("--trial", "-t", help="Which trial, such as 3-7 (default: the best).")] = None,
    trust: Trust = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit it, and do not wait for its end.")] = False,
    json: Json = False,
) -> None:
    """Run a trial again from the record alone, and say whether metrics and weights are equal (status 3 if not)."""
    from tenuto.cli.follow import follow
    from tenuto.cli.output import print_json

    rest = client(context)
    answer = rest.post(f"/experiments/{experiment}/reproduce", {"trial_id": trial, "trust": trust})
    child = answer["id"]
    if detach:
        print_json(answer) if json else say(f"Experiment {child} reproduces it; `tenuto exp reproduction {child}` compares.")
        return
    if not json:
        say(f"Experiment {child} reproduces it.", flush=True)
    try:
        story = follow(rest, child, quiet=json)
    except KeyboardInterrupt:
        say(f"\nExperiment {child} goes on; `tenuto exp reproduction {child}` compares.")
        raise
    if story.state != "completed":
        from tenuto.cli.output import cut

        raise CliError(f"Experiment {child} {story.state}{': ' + cut(story.error) if story.error else ''}", EXIT_NOT_COMPLETED)
    _report(rest, child, json)


def reproduction(context: typer.Context, experiment: ExperimentId, json: Json = False) -> None:
    """Compare a reproduction with the trial that it repeats (status 3 if metrics or weights are not equal)."""
    _report(client(context), experiment, json)


def _report(rest: Any, experiment: int, json: bool) -> None:
    from tenuto.cli.output import print_json

    found = rest.get(f"/experiments/{experiment}/reproduction")
    if json:
        print_json(found)
    else:
        unknown = "ended without anything to compare with" if found["ended"] else "has not ended, so it is not known to reproduce"
        verdict = {True: "reproduces", False: "does not reproduce", None: unknown}
        say(f"Trial {found['trial_id']} {verdict[found['equal']]} trial {found['reproduces']}.")
        say(f"{metrics_sentence(found['results'])} {weights_sentence(found['results'])}")
        for cause in found.get("causes") or ():
            say(f"Likely cause: {cause}.")
        others = [item for item in found["differences"] if item["effect"] != "none"]
        if others:
            show_differences(found["reproduces"], found["trial_id"], others, found["results"])
    if found["equal"] is False:
        raise typer.Exit(EXIT_NOT_EQUAL)


def fork(
    context: typer.Context,
    experiment: ExperimentId,
    settings: Settings = [],  # noqa: B006 - typer copies it
    file: OverridesFile = None,
    follow: Follow = False,
    json: Json = False,
) -> None:
    """Run an experiment again from its recorded code and seed, with other settings."""
    _derive(context, experiment, "fork", read_overrides(settings, file), follow, json)


def go_on(
    context: typer.Context,
    experiment: ExperimentId,
    settings: Settings = [],  # noqa: B006 - typer copies it
    file: OverridesFile = None,
    trust: Trust = False,
    follow: Follow = False,
    json: Json = False,
) -> None:
    """Go on with an ended experiment from its checkpoints, such as with --set searcher.max_length.epochs=20."""
    _derive(context, experiment, "continue", read_overrides(settings, file), follow, json, trust=trust)


def _derive(
    context: typer.Context,
    experiment: int,
    verb: str,
    overrides: dict[str, Any],
    follow: bool,
    json: bool,
    *,
    trust: bool = False,
) -> None:
    from tenuto.cli.origin import origin
    from tenuto.cli.output import print_json

    rest = client(context)
    made = origin(None, overrides)
    body = {"overrides": overrides, "origin": made.model_dump(mode="json"), "trust": trust}
    answer = rest.post(f"/experiments/{experiment}/{verb}", body)
    if json:
        print_json(answer)
    else:
        does = "varies" if verb == "fork" else "goes on with"
        changed = f": {', '.join(f'{path}={value}' for path, value in made.overrides.items())}" if made.overrides else ""
        say(f"Experiment {answer['id']} {does} experiment {experiment}{changed}.", flush=True)
        tell_plan(answer)
        if not follow:
            say(f"`tenuto exp wait {answer['id']}` returns at its end; `tenuto diff {experiment} {answer['id']}` compares.")
    if follow:
        follow_to_end(rest, answer["id"], quiet=json)
