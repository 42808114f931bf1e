"""Routes, rights and examples of notices, as the door takes them."""

from __future__ import annotations

from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.notices import examples, routes
from tenuto.services.gateway.notices.permissions import ROUTES

SUBJECT = Subject(
    "notices",
    ROUTES,
    (routes.router,),
    example_bodies=examples.BODIES,
    example_views=examples.VIEWS,
)
