"""run import: runs that were made without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.cli.common import Json, client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say

app = typer.Typer(no_args_is_help=True)


@app.callback()
def root() -> None:
    """Keeps `import` a command of its own while it is the only one."""


@app.command("import")
def import_run(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="The run's record, such as tenuto-runs/digits-1.")],
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Agents read the record where it is, on a shared disk; nothing is packed.")
    ] = False,
    json: Json = False,
) -> None:
    """Make an experiment of a run without a cluster: a worker reports its metrics, validations and checkpoints."""
    from tenuto.workers.core_api.local_record import read_run
    from tenuto.workers.core_api.local_session import lock
    from tenuto.workers.errors import UserError

    try:
        read_run(directory)  # else the lock would be made in a directory that is none
        unlock = lock(directory)
        try:
            answer = _submitted(context, directory, packed=not in_place)
        finally:
            unlock()
    except UserError as error:
        raise CliError(str(error)) from error
    if json:
        from tenuto.cli.output import print_json

        print_json(answer)
    else:
        say(f"Experiment {answer['id']} imports the run; `tenuto exp wait {answer['id']}` returns when it is complete.")


def _submitted(context: typer.Context, directory: Path, *, packed: bool) -> dict[str, Any]:
    """The experiment that imports the record. Raises UserError and CliError."""
    import tempfile

    from tenuto.client.errors import ClientError, Refused
    from tenuto.client.packing import pack
    from tenuto.kernel.scratch import scratch_directory
    from tenuto.kernel.settings import Settings
    from tenuto.workers.core_api.importing import fill_context, import_config, import_key, import_origin

    size_bytes_max = Settings.from_environment().context_bytes_max
    text = import_config(directory)
    with scratch_directory("import") as place, tempfile.TemporaryFile() as archive:
        fill_context(directory, place, packed=packed)
        try:
            size_bytes = pack(place, archive, size_bytes_max).size_bytes
        except ClientError as error:
            raise CliError(
                f"{directory} cannot be packed for the cluster; with --in-place the agents read it where it is, if they "
                f"see that disk ({error})"
            ) from error
        archive.seek(0)
        origin, key = import_origin(directory).to_json(), import_key(directory, packed=packed)
        try:
            answer: dict[str, Any] = client(context).submit(text.encode(), archive, size_bytes, origin, key=key)
        except Refused as error:
            if error.path != "Idempotency-Key":
                raise
            raise CliError(f"{directory} was imported before, and its files have changed since: {error}") from error
    return answer
