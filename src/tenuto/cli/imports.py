"""import: what other platforms wrote, in the form of Tenuto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenuto.cli.common import Json
from tenuto.cli.errors import CliError
from tenuto.cli.mlflow_runs import import_mlflow
from tenuto.cli.say import say

EXIT_LEFT_OUT = 3
"""Status where a configuration was converted, and something of it left out."""
app = typer.Typer(no_args_is_help=True)
app.command("mlflow")(import_mlflow)


@app.callback()
def root() -> None:
    """Keeps each importer a command of its own."""


@app.command("determined")
def import_determined(
    config: Annotated[Path, typer.Argument(help="Experiment configuration of Determined (YAML), of any version.")],
    directory: Annotated[Path | None, typer.Argument(help="The model directory: its code is looked through, too.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: standard output).")] = None,
    json: Json = False,
) -> None:
    """Rewrite an experiment configuration of Determined into Tenuto's. What cannot be carried over is named on standard error.

    Exits with 0 if everything is carried over, 3 if something is left out, and 1 if there is no such experiment here."""
    import sys

    from tenuto.cli.from_determined import Kind, convert
    from tenuto.cli.from_determined.code import look_through
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.reading import load_yaml

    try:
        document = load_yaml(config.read_bytes())
    except OSError as error:
        raise CliError(f"Cannot read {config}: {error.strerror}.") from error
    except ConfigError as error:
        raise CliError(f"{config} is refused:\n" + "\n".join(f"  {problem}" for problem in error.problems)) from error
    if not isinstance(document, dict):
        raise CliError(f"{config} is no configuration: it must be a mapping of fields, such as `entrypoint: model_def:MyTrial`.")
    conversion = convert(document)
    notes = [*conversion.notes, *(look_through(directory) if directory is not None else ())]
    if json:
        from tenuto.cli.output import print_json

        print_json(
            {
                "config": conversion.config,
                "notes": [{"path": one.path, "kind": one.kind, "sentence": one.sentence, "value": one.value} for one in notes],
            }
        )
    else:
        for note in notes:
            say(str(note), file=sys.stderr)
    if conversion.config is None:
        refused = sum(note.kind is Kind.REFUSED for note in notes)
        raise CliError(f"{config} is not converted: {refused} of its fields {'has' if refused == 1 else 'have'} no equal here.")
    if not json or output is not None:
        _write(as_yaml(conversion.config), output)
    if any(note.kind is not Kind.CHANGED for note in notes):
        raise typer.Exit(EXIT_LEFT_OUT)


def as_yaml(config: object) -> str:
    from tenuto.schemas.config.yaml_text import dump_yaml

    return dump_yaml(config, width=120)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        say(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"Cannot write {output}: {error.strerror}.") from error
    say(f"{output} is written; `tenuto exp create {output} MODEL_DIR` submits it.")
