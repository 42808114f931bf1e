"""Parts that people bring to the door."""

from __future__ import annotations

from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.people import examples
from tenuto.services.gateway.people.permissions import ROUTES
from tenuto.services.gateway.people.routes import page_links, roles, secrets, sign_in, sso, users, workspaces

SUBJECT = Subject(
    "people",
    ROUTES,
    (
        page_links.router,
        roles.router,
        secrets.router,
        sign_in.router,
        sso.router,
        users.router,
        workspaces.router,
    ),
    example_bodies=examples.BODIES,
    example_views=examples.VIEWS,
)
