"""What a command says of a YAML file that it reads."""

from __future__ import annotations

import sys
from pathlib import Path

from tenuto.cli.say import say


def tell_differences(path: Path, text: bytes) -> None:
    """Where other readers of YAML take a value for something else: what is meant is the user's to say."""
    from tenuto.schemas.config.yaml_text import differences

    for difference in differences(text):
        say(f"{path}, {difference}", file=sys.stderr)
