"""YAML files that a command reads, and what it says of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tenuto.cli.errors import CliError
from tenuto.cli.say import say


def tell_differences(path: Path, text: bytes) -> None:
    """Warns of values that other readers of YAML take for something else: only the user knows which is meant."""
    from tenuto.schemas.config.yaml_text import differences

    for difference in differences(text):
        say(f"{path}, {difference}", file=sys.stderr)


def read_yaml(path: Path) -> Any:
    """Plain data of a file that is no configuration, or not all of one; None of an empty one. Raises CliError."""
    from tenuto.schemas.config.errors import ConfigError
    from tenuto.schemas.config.judging import NOT_FINITE, non_finite
    from tenuto.schemas.config.reading import load_part

    try:
        text = path.read_bytes()
        found = load_part(text)
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}.") from error
    except ConfigError as error:
        raise CliError(f"{path} is refused: {error}") from error
    tell_differences(path, text)
    if odd := non_finite(found):
        raise CliError(f"{path} is refused: {odd[0]} {NOT_FINITE} (found {odd[1]}).")
    return found
