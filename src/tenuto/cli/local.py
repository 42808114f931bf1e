"""exp create --local: the first trial of an experiment in the foreground, without a cluster."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.cli.errors import CliError
from tenuto.cli.say import say

Local = Annotated[bool, typer.Option("--local", help="Train the first trial here, in this process, without a cluster.")]
Test = Annotated[
    bool,
    typer.Option("--test", help="With --local: train a few batches, save, resume, and say what would have failed on a cluster."),
]
Record = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="With --local: directory of the run's record; one that holds a run goes on from its checkpoint."
    ),
]


def run_here(
    config: Path,
    directory: Path,
    overrides: Sequence[str],
    *,
    test: bool,
    record: Path | None,
    others: Mapping[str, object],
) -> None:
    """Does not return, except after a test. This process becomes the one that trains, so that its terminal, debugger and signals
    are the user's own. `others`: options of a submission, which mean nothing here."""
    from tenuto.cli.overrides import read_overrides
    from tenuto.cli.preview import read_config
    from tenuto.client.packing import check_entrypoint
    from tenuto.workers.core_api.local import new_directory
    from tenuto.workers.errors import UserError

    for option, value in others.items():
        if value:
            raise CliError(f"{option} is for experiments of a cluster: leave it out, or leave out --local.")
    parsed = read_config(config, overrides)
    check_entrypoint(directory, parsed.entrypoint)
    variables = _variables(parsed.environment.variables, parsed.environment.secrets)
    if test:
        from tenuto.cli.local_test import rehearse_here

        rehearse_here(parsed, directory, variables)
        raise typer.Exit
    try:
        target = (record if record is not None else new_directory(parsed.name)).absolute()
    except (UserError, OSError) as error:
        raise CliError(f"The record cannot be made in {Path.cwd()}: {error}; name another place with --record.") from error
    try:
        _begin(parsed, target, directory, read_overrides(overrides))
    except UserError as error:
        if record is None:
            with contextlib.suppress(OSError):
                target.rmdir()  # if nothing was written
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(
            f"{error.filename or record} cannot be written: {error.strerror}; name another place with --record."
        ) from error
    become("tenuto.workers.local", target, directory.absolute(), variables)


def become(module: str, record: Path, directory: Path, variables: Mapping[str, str]) -> None:
    """Replaces this process by the one that trains, started as a worker is: with the same order of sets in each process, and
    with no file of the user's in the way of an import of ours."""
    sys.stdout.flush()
    sys.stderr.flush()
    arguments = [sys.executable, "-P", "-m", module, str(record), str(directory)]
    os.execve(sys.executable, arguments, {**os.environ, **variables})


def _begin(config: Any, record: Path, directory: Path, overrides: Mapping[str, Any]) -> None:
    """Writes what the record begins with: the description, and the code as it is now."""
    import shlex
    import tarfile
    import tempfile

    from tenuto.cli.origin import origin
    from tenuto.client.errors import ClientError
    from tenuto.client.packing import pack
    from tenuto.kernel.archives import extract_all
    from tenuto.kernel.settings import Settings
    from tenuto.local import begin
    from tenuto.workers.core_api.local_record import CODE_DIRECTORY, RUN_FILE

    known = begin(config, record).context_hash if (record / RUN_FILE).exists() else None
    made = None if known is not None else origin(directory, overrides)
    with tempfile.TemporaryFile() as archive:
        context_hash = ""
        try:
            context_hash = pack(directory, archive, Settings.from_environment().context_bytes_max).sha256
        except ClientError as error:
            say(f"tenuto: a cluster would refuse this model directory: {error}", file=sys.stderr)
        if made is None:
            if known and context_hash and known != context_hash:
                say("tenuto: the model directory is not what this run began with; the record keeps that", file=sys.stderr)
            return
        archive.seek(0)

        def fill() -> None:
            if context_hash:
                with tarfile.open(fileobj=archive, mode="r:gz") as files:
                    extract_all(files, record / CODE_DIRECTORY)

        begin(
            config,
            record,
            command=shlex.split(made.command_line),
            given=made.overrides,
            git=made.git,
            context_hash=context_hash,
            fill=fill,
        )


def _variables(chosen: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that a worker would have, beside those of this process. Raises CliError."""
    missing = sorted(name for name in secrets if name not in os.environ)
    if missing:
        raise CliError(
            f"environment.secrets: a cluster's secrets are not here; set {', '.join(missing)} as variables of this command."
        )
    threads = {} if os.environ.get("CUDA_VISIBLE_DEVICES") or Path("/dev/nvidiactl").exists() else _ONE_CPU_SLOT
    kept = {name: value for name, value in threads.items() if name not in os.environ}
    return {"PYTHONHASHSEED": "0", **kept, **chosen}


_ONE_CPU_SLOT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Threads of a trial on one CPU slot: other numbers of threads give other last bits."""
