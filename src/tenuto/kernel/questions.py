"""Questions of one service to another over the bus."""

from __future__ import annotations

import contextlib

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.api import Header

from tenuto.schemas import subjects

NO_RESPONDERS = "503"
"""Status of the server's own answer if the subject has no subscribers."""


async def ask(bus: Client, subject: str, question: bytes, seconds: float) -> bytes:
    """The answer of the service that the subject names. Raises nats.errors.Error.

    A right to answer the asker, which the server gives with each message, ends when the server reads its users again (as it
    does whenever an agent joins) or the service reconnects. So the inbox names the service, which may always answer there.
    """
    inbox = subjects.answers_of(bus.new_inbox(), subjects.service_of(subject))
    subscription = await bus.subscribe(inbox)
    try:
        await bus.publish(subject, question, reply=inbox)
        answer = await subscription.next_msg(seconds)
    finally:
        with contextlib.suppress(NatsError):
            await subscription.unsubscribe()
    if not answer.data and (answer.headers or {}).get(Header.STATUS) == NO_RESPONDERS:
        raise NoRespondersError
    return bytes(answer.data)
