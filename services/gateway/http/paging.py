"""Pages of lists: the link to the next page (`Link`, RFC 8288), and its opaque parts."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request

from tenuto.services.gateway.http.context import MORE_HEADER
from tenuto.services.gateway.http.errors import DoorError

TOTAL_HEADER = "Tenuto-Total"
CURSOR_CHARACTERS_MAX = 2_000


def next_page(request: Request, **where: Any) -> dict[str, str]:
    """Headers of a full page. `where`: the parameters by which the next one differs. The address is relative to that of the
    request, so that it is right behind any proxy."""
    query = {**request.query_params, **{name: str(value) for name, value in where.items()}}
    return {"Link": f'<?{urlencode(query)}>; rel="next"', MORE_HEADER: "true"}


def total(count: int | None) -> dict[str, str]:
    return {} if count is None else {TOTAL_HEADER: str(count)}


def cursor(*values: int | str) -> str:
    """Cursor that is opaque to clients, so that its form may change at any time."""
    return base64.urlsafe_b64encode(json.dumps(values, ensure_ascii=False).encode()).decode().rstrip("=")


def read_cursor(given: str, kinds: Sequence[type]) -> tuple[Any, ...]:
    """Values of the cursor. Raises DoorError if `cursor` did not make it of values of these types."""
    try:
        values = json.loads(base64.b64decode(given + "=" * (-len(given) % 4), altchars=b"-_", validate=True))
        fits = isinstance(values, list) and [type(value) for value in values] == list(kinds)
        if not fits or any(isinstance(value, int) and abs(value) > 2**62 for value in values):
            raise ValueError
        if any(isinstance(value, str) and "\0" in value for value in values):
            raise ValueError
    except (ValueError, RecursionError):
        raise DoorError(
            "invalid",
            "cursor is not one of this list with this sort; take it from the `Link` header of its page before.",
            "cursor",
        ) from None
    return tuple(values)


Cursor = Annotated[str | None, Query(max_length=CURSOR_CHARACTERS_MAX, description="Of the page before, from its `Link`.")]
