"""All event types, by name. Importing this package registers every one of them."""

from tenuto.schemas.events import agent, notice, people, pool, request, run, search, trial
from tenuto.schemas.events.registry import EVENT_MODELS, OWNERS, EventData, parse

__all__ = [
    "EVENT_MODELS",
    "OWNERS",
    "EventData",
    "agent",
    "notice",
    "parse",
    "people",
    "pool",
    "request",
    "run",
    "search",
    "trial",
]
