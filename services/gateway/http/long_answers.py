"""Limits on the long answers that one user is sent at once."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.services.gateway.http.fair_queue import Turns
from tenuto.services.gateway.http.subject import Subject

HISTORIES_PER_USER_MAX = 4
"""Most histories of one user answered at once, until they are sent; further ones wait. Fewer than the views have connections."""
DOWNLOADS_PER_USER_MAX = 4
"""Most downloads of one user at once; further ones wait. They take at most this many of the 40 threads that all users share."""


def turns(subjects: Iterable[Subject]) -> dict[str, Turns]:
    """Turns by route. Routes of one kind share their turns."""
    histories, downloads = Turns(of_one_user=HISTORIES_PER_USER_MAX), Turns(of_one_user=DOWNLOADS_PER_USER_MAX)
    found: dict[str, Turns] = {}
    for subject in subjects:
        found |= dict.fromkeys(subject.histories, histories) | dict.fromkeys(subject.downloads, downloads)
    return found
