"""ckpt ls, ckpt download, ckpt verify, ckpt gc."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say
from tenuto.client.messages import items

if TYPE_CHECKING:
    from tenuto.client.blocking.client import Client

app = typer.Typer(no_args_is_help=True)
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Directory to make (default: ./checkpoint-ID).")]


@app.command("ls")
def list_checkpoints(
    context: typer.Context,
    experiment: Annotated[int | None, typer.Option("--experiment", "-e", help="Only of this experiment.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Deleted ones too.")] = False,
    json: Json = False,
) -> None:
    """List checkpoints."""
    from tenuto.cli.output import print_json, show_rows, size, when

    query = {"experiment": experiment, "deleted": "true" if everything else None}
    rows = items(client(context).get("/checkpoints", **query))
    if json:
        print_json(rows)
        return
    cells = [
        (
            item["id"],
            item["trial_id"],
            item["length"],
            item["metric"],
            size(item["size_bytes"]),
            when(item["saved_us"]),
            item["location"],
        )
        for item in rows
    ]
    show_rows(("checkpoint", "trial", ">length", ">metric", ">size", "saved", "location"), cells, "No checkpoints.")
    for line in damages(rows):
        say(line)


def damages(checkpoints: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence for each that a run could not resume from: what was wrong, and what was done."""
    lines = []
    for item in checkpoints:
        if item.get("damage"):
            instead = item.get("resumed_from")
            then = f"resumed from {instead} instead" if instead else "no earlier one could be used"
            lines.append(f"{item['id']} is damaged: {item['damage']}; {then}")
    return lines


@app.command()
def download(
    context: typer.Context,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Id of the checkpoint.")],
    output: Output = None,
) -> None:
    """Copy a checkpoint's files into a directory."""
    say(fetch(client(context), checkpoint, output))


@app.command()
def verify(
    context: typer.Context,
    checkpoint: Annotated[str | None, typer.Argument(metavar="CHECKPOINT", help="Id of the checkpoint.")] = None,
    experiment: Annotated[int | None, typer.Option("--experiment", "-e", help="All of this experiment.")] = None,
    json: Json = False,
) -> None:
    """Read checkpoints whole, and compare with their recorded sizes and SHA-256. Exit code 1 if one is damaged."""
    from tenuto.cli.output import print_json

    rest = client(context)
    if (checkpoint is None) == (experiment is None):
        raise CliError("Say which: `tenuto ckpt verify CHECKPOINT`, or `--experiment EXPERIMENT` for all of one experiment.")
    ids = [checkpoint] if checkpoint else [item["id"] for item in items(rest.get("/checkpoints", experiment=experiment))]
    verdicts = [rest.post(f"/checkpoints/{name}/verify") for name in ids]
    if json:
        print_json(verdicts)
    else:
        for verdict in verdicts:
            say(f"{verdict['id']}: " + ("as recorded" if verdict["ok"] else f"damaged: {'; '.join(verdict['problems'])}"))
        if not verdicts:
            say("No checkpoints.")
    if not all(verdict["ok"] for verdict in verdicts):
        raise typer.Exit(1)


@app.command("gc")
def collect_garbage(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    older_than_hours: Annotated[float, typer.Option(help="Keep files younger than this.", min=0)] = 24.0,
    experiment: Annotated[int | None, typer.Option("--experiment", "-e", help="Only of this experiment.")] = None,
    json: Json = False,
) -> None:
    """Remove what was stored but never recorded: traces of processes that died while they saved."""
    from urllib.parse import urlencode

    from tenuto.cli.output import print_json, show_rows, size

    query = {"dry_run": str(dry_run).lower(), "older_than_seconds": int(older_than_hours * 3600), "experiment": experiment}
    used = urlencode({name: value for name, value in query.items() if value is not None})
    found = client(context).post(f"/checkpoints/gc?{used}")
    if json:
        print_json(found)
        return
    rows = [(item["url"], size(item["size_bytes"]), item["reason"]) for item in found["orphans"]]
    show_rows(("what", ">size", "why"), rows, "Nothing is left over.")
    if rows:
        say(f"{len(rows)} {'would be' if dry_run else 'were'} removed, {size(found['size_bytes'])}.")
    for problem in found["problems"]:
        say(f"Not looked at: {problem}")


def fetch(rest: Client, checkpoint_id: str, output: Path | None) -> Path:
    """The directory that was made. It is complete, or it is not there."""
    from tenuto.client import files

    return files.download(rest.target, checkpoint_id, output or Path(f"checkpoint-{checkpoint_id}"))
