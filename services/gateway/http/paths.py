"""Parts of addresses and headers that several subjects take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path

from tenuto.schemas.names import NAME_PATTERN

IDEMPOTENCY_KEY_CHARACTERS_MAX = 200
Key = Annotated[str, Header(alias="Idempotency-Key", max_length=IDEMPOTENCY_KEY_CHARACTERS_MAX)]
WorkspaceName = Annotated[str, Path(pattern=NAME_PATTERN)]
