"""Routes, rights and examples of automations, as the door takes them."""

from __future__ import annotations

from tenuto.services.gateway.automations import examples, routes
from tenuto.services.gateway.automations.permissions import ROUTES
from tenuto.services.gateway.http.subject import Subject

SUBJECT = Subject(
    "automations",
    ROUTES,
    (routes.router,),
    example_bodies=examples.BODIES,
    example_views=examples.VIEWS,
)
