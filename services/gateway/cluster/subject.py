"""Parts that the cluster brings to the door."""

from __future__ import annotations

from tenuto.services.gateway.cluster import examples
from tenuto.services.gateway.cluster.permissions import ROUTES
from tenuto.services.gateway.cluster.routes import agents, jobs, joining, nodes, what_if
from tenuto.services.gateway.http.subject import Subject

SUBJECT = Subject(
    "cluster",
    ROUTES,
    (
        agents.router,
        jobs.router,
        joining.router,
        nodes.router,
        what_if.router,
    ),
    example_bodies=examples.BODIES,
    example_views=examples.VIEWS,
)
