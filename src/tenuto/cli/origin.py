"""What is put on record of a submission beside configuration and code: the command line, its overrides, the state of git."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto.schemas.record import OVERRIDES_MAX, Origin
from tenuto.workers.record.git import CREDENTIALS, git_state

COMMAND_LINE_CHARACTERS_MAX = 10_000


def origin(directory: Path | None, overrides: Mapping[str, Any], arguments: Sequence[str] | None = None) -> Origin:
    """`directory`: the model directory, None where there is none. `arguments` default to this process's own."""
    from tenuto.services.gateway.policies.derive import dotted

    line = shlex.join(["tenuto", *(sys.argv[1:] if arguments is None else arguments)])
    return Origin(
        command_line=CREDENTIALS.sub("(hidden)@", line)[:COMMAND_LINE_CHARACTERS_MAX],
        overrides=dict(list(dotted(overrides).items())[:OVERRIDES_MAX]),
        git=git_state(directory) if directory is not None else None,
    )
