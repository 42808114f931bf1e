"""exp rename, label, note, archive, unarchive, delete and undelete: what becomes of an experiment after its submission."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tenuto.cli.common import ExperimentId, client
from tenuto.cli.errors import CliError, UsageError
from tenuto.cli.say import say


def rename(context: typer.Context, experiment: ExperimentId, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Give an experiment another name. The configuration on record stays as it is."""
    _describe(context, experiment, {"name": name})


def label(
    context: typer.Context,
    experiment: ExperimentId,
    add: Annotated[list[str], typer.Option("--add", "-a", help="A label to add; may be repeated.")] = [],  # noqa: B006 - typer copies it
    remove: Annotated[list[str], typer.Option("--remove", "-r", help="A label to remove; may be repeated.")] = [],  # noqa: B006
) -> None:
    """Add labels to an experiment, or remove some. `tenuto exp ls --label` finds it by them."""
    if not add and not remove:
        raise UsageError("Nothing to change: give --add or --remove with a label.")
    now = client(context).get(f"/experiments/{experiment}")["labels"]
    if missing := [item for item in remove if item not in now]:
        has = ", ".join(now) or "none"
        raise CliError(f"Experiment {experiment} has no label {missing[0]}; it has {has}.")
    kept = [item for item in now if item not in remove]
    _describe(context, experiment, {"labels": [*kept, *(item for item in dict.fromkeys(add) if item not in kept)]})


def note(context: typer.Context, experiment: ExperimentId, text: Annotated[str, typer.Argument(help="The note.")]) -> None:
    """Write a note about an experiment, in place of the one before. An empty text removes it."""
    _describe(context, experiment, {"note": text})


def archive(context: typer.Context, experiment: ExperimentId) -> None:
    """Leave an ended experiment out of lists. Nothing of it is deleted."""
    answer = client(context).post(f"/experiments/{experiment}/archive")
    say(f"Experiment {experiment} is archived." if answer["changed"] else _SO_ALREADY.format(experiment))


def unarchive(context: typer.Context, experiment: ExperimentId) -> None:
    """Show an archived experiment in lists again."""
    answer = client(context).post(f"/experiments/{experiment}/unarchive")
    say(f"Experiment {experiment} is in lists again." if answer["changed"] else _SO_ALREADY.format(experiment))


def delete(
    context: typer.Context,
    experiments: Annotated[list[int], typer.Argument(metavar="EXPERIMENT...", help="Ids of experiments.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    now: Annotated[bool, typer.Option("--now", help="At once: it cannot be taken back.")] = False,
) -> None:
    """Delete ended experiments with their checkpoints, metrics, log lines and code. Until the grace time is over, `tenuto exp
    undelete` keeps them."""
    from tenuto.cli.output import when

    named = ", ".join(map(str, experiments))
    what = f"experiment{'s' if len(experiments) > 1 else ''} {named}"
    if not yes and not typer.confirm(f"Delete {what} with all checkpoints, metrics and log lines?"):
        raise CliError(f"Nothing was deleted: {what} stays.")
    rest = client(context)
    for experiment in experiments:
        answer = rest.delete(f"/experiments/{experiment}{'?now=true' if now else ''}")
        keeps = "" if now else f" at {when(answer['due_us'])}; until then `tenuto exp undelete {experiment}` keeps it"
        say(f"Experiment {experiment} is {'deleted now' if now else 'deleted'}{keeps}.")


def undelete(context: typer.Context, experiment: ExperimentId) -> None:
    """Keep an experiment that is to be deleted."""
    answer = client(context).post(f"/experiments/{experiment}/undelete")
    kept = f"Experiment {experiment} is kept."
    say(kept if answer["changed"] else f"Experiment {experiment} was not to be deleted: nothing changed.")


_SO_ALREADY = "Experiment {} already was so: nothing changed."


def _describe(context: typer.Context, experiment: int, body: dict[str, Any]) -> None:
    answer = client(context).patch(f"/experiments/{experiment}/description", body)
    say(f"Experiment {experiment} is changed." if answer["changed"] else _SO_ALREADY.format(experiment))
