"""Parts that the log brings to the door."""

from __future__ import annotations

from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.log import examples
from tenuto.services.gateway.log.permissions import ROUTES
from tenuto.services.gateway.log.routes import events, status, upkeep

SUBJECT = Subject(
    "log",
    ROUTES,
    (
        events.router,
        status.router,
        upkeep.router,
    ),
    example_bodies=examples.BODIES,
    example_answers=examples.ANSWERS,
    example_views=examples.VIEWS,
    histories=frozenset(
        {
            "GET /api/v1/events",
            "GET /api/v1/events/search",
            "GET /api/v1/events/{position}/links",
        }
    ),
)
