"""`--set path=value` and `-f FILE`: values that stand over those of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.cli.errors import CliError

TEXTS = "environment.variables."
"""Path of values that are always text, whatever they look like."""
BEGINNINGS = ("{", "[", '"', "'")
"""First characters of values that are written as YAML or JSON; in a shell, all else is one word or a sentence."""
SHORT = "hparams."
"""Short for `hyperparameters.`"""
Settings = Annotated[
    list[str],
    typer.Option(
        "--set", "-s", metavar="PATH=VALUE", help="Set a field of the configuration, such as hyperparameters.lr=0.1 (repeatable)."
    ),
]
OverridesFile = Annotated[
    Path | None, typer.Option("--file", "-f", help="YAML in the shape of a configuration, with what changes only.")
]


def read_overrides(settings: Sequence[str], file: Path | None = None) -> dict[str, Any]:
    """Overrides in the shape of a configuration; `--set` takes precedence over the file. Raises CliError."""
    from tenuto.cli.yaml_notes import read_yaml
    from tenuto.schemas.config.derive import OverrideError, merged, nested
    from tenuto.schemas.config.judging import NOT_FINITE, non_finite

    from_file: Any = {}
    if file is not None:
        from_file = read_yaml(file) or {}
        if not isinstance(from_file, dict):
            raise CliError(f"{file} must be a mapping in the shape of a configuration, such as `hyperparameters: {{lr: 0.1}}`.")
    values: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise CliError(f"--set {setting!r} has no value: write it as path=value, such as hyperparameters.batch_size=64.")
        name = f"hyperparameters.{path.strip()[len(SHORT) :]}" if path.strip().startswith(SHORT) else path.strip()
        values[name] = text if name.startswith(TEXTS) else _value(text)
    try:
        found = merged(from_file, nested(values))
    except OverrideError as error:
        raise CliError(f"--set {error.path}: {error}.") from error
    if odd := non_finite(found):
        raise CliError(f"{odd[0]} {NOT_FINITE} (found {odd[1]}).")
    return found


def _value(text: str) -> Any:
    """Value of a setting. One value, a list or mapping in brackets, or a quoted text is read as in a configuration: `64`, `1e-3`,
    `true`, `adam`, `{epochs: 5}`. All else is text, unchanged: `Answer: yes` and `a #b`, too."""
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.reading import load_yaml
    from tenuto.schemas.config.yaml_text import plain_value

    if text.strip()[:1] in BEGINNINGS:
        try:
            return load_yaml(text)
        except ConfigError:
            return text
    return plain_value(text) if text else text


def with_overrides(config: bytes, overrides: Mapping[str, Any]) -> bytes:
    """The configuration's text with the overrides in it. A text that cannot be read stays: its reader says what is wrong."""
    from tenuto.schemas.config.derive import merged
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.reading import load_yaml
    from tenuto.schemas.config.yaml_text import dump_yaml

    if not overrides:
        return config
    try:
        document = load_yaml(config)
    except ConfigError:
        return config
    # As YAML: JSON has no infinity, with which the file may be refused.
    return dump_yaml(merged(document, overrides)).encode() if isinstance(document, dict) else config
