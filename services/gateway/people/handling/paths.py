"""Parts of addresses that name a user."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from tenuto.schemas.events.request import USER_NAME_PATTERN

UserName = Annotated[str, Path(pattern=USER_NAME_PATTERN)]
