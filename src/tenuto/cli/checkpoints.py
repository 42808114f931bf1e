"""ckpt ls, ckpt download."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Annotated

import typer

from tenuto.cli.client import Client
from tenuto.cli.common import Json, client, items
from tenuto.cli.errors import CliError

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


@app.command()
def download(
    context: typer.Context,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Id of the checkpoint.")],
    output: Output = None,
) -> None:
    """Copy a checkpoint's files into a directory."""
    print(fetch(client(context), checkpoint, output))


def fetch(rest: Client, checkpoint_id: str, output: Path | None) -> Path:
    """The directory that was made. It is complete, or it is not there."""
    target = output or Path(f"checkpoint-{checkpoint_id}")
    if target.exists():
        raise CliError(f"{target} exists already: give another directory with --output.")
    partial = target.with_name(f".{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        with (
            rest.download(f"/checkpoints/{checkpoint_id}/download") as stream,
            tarfile.open(fileobj=stream, mode="r|*") as archive,
        ):
            for entry in archive:
                # "data" refuses absolute names, names outside the directory and device files.
                archive.extract(entry, partial, filter="data")
        partial.rename(target)
    except tarfile.TarError as error:
        raise CliError(f"The checkpoint {checkpoint_id} arrived damaged ({error}): try again.") from error
    except OSError as error:
        raise CliError(f"Cannot write the checkpoint to {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
