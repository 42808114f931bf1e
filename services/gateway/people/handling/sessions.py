"""Sessions: their length, and the users who may begin one."""

from __future__ import annotations

from tenuto.services.gateway.http.context import asking_token
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.people.door import PeopleDoor

NO_STORE = {"Cache-Control": "no-store"}


def session_seconds(door: PeopleDoor) -> float | None:
    """Length of a session; None: it does not end by itself."""
    days = door.settings.session_days
    return days * 24 * 3600 if days > 0 else None


def session_end(door: PeopleDoor, now_us: int) -> int | None:
    seconds = session_seconds(door)
    return None if seconds is None else now_us + int(seconds * 1_000_000)


def check_unlimited() -> None:
    """Raises DoorError for a limited token: a new user, or one with a new password, may do more than it."""
    shown = asking_token()
    if shown is not None and shown.is_limited:
        raise DoorError("forbidden", f"The token {shown.id} is limited, and a user may do more: use one that is not.")
