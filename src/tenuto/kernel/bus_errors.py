"""Classes of errors of NATS and JetStream: those that mean the bus cannot be reached now, although the request is right."""

from __future__ import annotations

import nats.errors
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

BUS_AWAY = (
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.NoServersError,
    nats.errors.StaleConnectionError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.OutboundBufferLimitError,  # what was sent while it was unreachable fills the client's buffer
    NoStreamResponseError,
    ServiceUnavailableError,
)
"""Errors after which the same request may succeed later. A message that is too large, for one, never will."""
