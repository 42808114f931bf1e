"""Origin of a submission, which the command line puts on record beside configuration and code."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenuto.client.submitting import origin_of
from tenuto.schemas.record import Origin


def origin(directory: Path | None, overrides: Mapping[str, Any], arguments: Sequence[str] | None = None) -> Origin:
    """`directory`: the model directory, None where there is none. `arguments` default to this process's own."""
    from tenuto.schemas.config.derive import dotted

    return origin_of(["tenuto", *(sys.argv[1:] if arguments is None else arguments)], directory, dotted(overrides))
