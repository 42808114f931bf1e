"""Parts of addresses that name an experiment."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

ExperimentId = Annotated[int, Path(ge=1, le=2**62)]
