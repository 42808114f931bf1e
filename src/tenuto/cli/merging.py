"""A configuration as the cluster merges it: with its template, and the defaults of its workspace."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenuto.cli.common import client
from tenuto.cli.errors import CliError
from tenuto.cli.say import say
from tenuto.cli.yaml_notes import tell_differences
from tenuto.client.errors import ClientError, Refused

if TYPE_CHECKING:
    from tenuto.schemas.config import ExperimentConfig
    from tenuto.schemas.config.errors import Problem

Template = Annotated[
    str | None, typer.Option("--template", help="Template whose values count where the configuration says nothing.")
]


def read_text(path: Path, changes: Mapping[str, Any], then: str = "") -> bytes:
    """The configuration in the file, with what the command line says. `then`: what is given behind it. Raises CliError."""
    from tenuto.cli.overrides import with_overrides

    try:
        text = path.read_bytes()
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}; give the configuration's YAML file{then}.") from error
    tell_differences(path, text)
    return with_overrides(text, changes)


def merged_by_cluster(context: typer.Context, text: bytes, said: Sequence[str]) -> dict[str, Any]:
    """The answer of `POST /preview`. Raises ClientError."""
    found: dict[str, Any] = client(context).post("/preview", {"config": text.decode(), "overrides": said})
    return found


def read_merged(context: typer.Context, path: Path, text: bytes, said: Sequence[str] = ()) -> ExperimentConfig:
    """The configuration that the cluster would record. It is asked only if the text alone is refused or names a template. Raises
    CliError with every problem."""
    from tenuto.schemas.config import ExperimentConfig
    from tenuto.schemas.config.errors import ConfigError, Problem
    from tenuto.schemas.config.reading import parse_config

    alone: Sequence[Problem] = ()
    try:
        config = parse_config(text)
        if config.template is None:
            return config
    except ConfigError as error:
        alone = error.problems
    try:
        view = merged_by_cluster(context, text, said)
    except (ClientError, UnicodeDecodeError) as error:
        if isinstance(error, Refused) and error.problems:
            raise refused(path, [Problem(**item) for item in error.problems]) from error
        if alone:
            raise refused(path, alone) from error
        raise
    return ExperimentConfig.model_validate(view["config"])


def tell_plan(answer: Mapping[str, Any], text: bytes = b"") -> None:
    """Prints the plan of a new experiment's search, and doubts about it, from the cluster's answer. `text`: the file that was
    sent, whose YAML warnings were printed when it was read."""
    from tenuto.schemas.config.yaml_text import differences

    told = frozenset(map(str, differences(text)))
    if answer.get("rungs"):
        say(f"rungs: {answer['rungs']}", flush=True)
    for warning in answer.get("warnings", ()):
        if warning in told:
            continue
        say(f"warning: {warning}", file=sys.stderr, flush=True)


def refused(path: Path, problems: Sequence[Problem]) -> CliError:
    return CliError(f"{path} is refused:\n" + "\n".join(f"  {problem}" for problem in problems))
