"""Parts of addresses and queries about pools."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from tenuto.schemas.names import NAME_PATTERN

PoolName = Annotated[str, Path(pattern=NAME_PATTERN)]
At = Annotated[int, Query(ge=1, le=2**62, description="Position of the log: the answer is as it was after that event.")]
