"""Parts that templates bring to the door."""

from __future__ import annotations

from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.templates import examples, routes
from tenuto.services.gateway.templates.permissions import ROUTES

SUBJECT = Subject(
    "templates",
    ROUTES,
    (routes.router,),
    example_bodies=examples.BODIES,
    example_views=examples.VIEWS,
)
