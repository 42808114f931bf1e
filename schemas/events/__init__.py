"""All event types, by name. Importing this package registers every one of them."""

from tenuto.schemas.events import (
    access,
    agent,
    automation,
    joining,
    node,
    notice,
    people,
    pool,
    provisioning,
    request,
    run,
    search,
    templates,
    trial,
    unmanaged,
)
from tenuto.schemas.events.registry import EVENT_MODELS, OWNERS, EventData, parse

__all__ = [
    "EVENT_MODELS",
    "OWNERS",
    "EventData",
    "access",
    "agent",
    "automation",
    "joining",
    "node",
    "notice",
    "parse",
    "people",
    "pool",
    "provisioning",
    "request",
    "run",
    "search",
    "templates",
    "trial",
    "unmanaged",
]
