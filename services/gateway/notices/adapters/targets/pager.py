"""PagerDuty's Events API v2, by its own client: one alert per experiment (or agent), resolved when its problem is over.

The client blocks, and would retry by itself after waits; here it does not retry, as the webhook's own schedule does that for
all targets. It runs in a thread of its own, so that a PagerDuty that hangs blocks no other target.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx2
from pagerduty import EventsApiV2Client
from pagerduty.errors import Error as PagerDutyError

from tenuto.schemas.webhooks import PagerDutyTarget
from tenuto.services.gateway.notices.adapters.addresses import AddressRefused, Guard
from tenuto.services.gateway.notices.adapters.guarded_http import USER_AGENT
from tenuto.services.gateway.notices.adapters.messages import Message, NoticeInWords, iso_time
from tenuto.services.gateway.notices.adapters.targets.target import (
    ATTEMPT_SECONDS_MAX,
    Delivered,
    Means,
    NotEver,
    NotNow,
    TargetPlugin,
    host_of,
    judged,
    retry_after,
)

SUMMARY_CHARACTERS_MAX = 1_024
RANK = {"info": 0, "warning": 1, "error": 2}

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it writes a line for each request


class Pinned(httpx2.BaseTransport):
    """Sends requests to the configured host of PagerDuty (its European region has another). The host is looked up once, and the
    connection goes to the address that was judged; the certificate must still be the host's."""

    def __init__(self, api_url: str, guard: Guard) -> None:
        self._origin, self._guard = httpx2.URL(api_url), guard
        self._inner = httpx2.HTTPTransport(trust_env=False)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        origin = self._origin
        address = self._guard.resolved(origin.host, origin.port or (443 if origin.scheme == "https" else 80))
        request.headers["Host"] = origin.netloc.decode()
        request.extensions = {**request.extensions, "sni_hostname": origin.host}
        request.url = request.url.copy_with(scheme=origin.scheme, host=address, port=origin.port)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class PagerDuty:
    def __init__(self, routing_key: str, api_url: str, guard: Guard) -> None:
        self._key, self._api_url, self._guard = routing_key, api_url, guard
        self._thread = ThreadPoolExecutor(1, "webhook-pagerduty")

    async def send(self, message: Message) -> Delivered:
        self._guard.refused = ""
        sending = asyncio.get_running_loop().run_in_executor(self._thread, self._send, message)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS_MAX):
                return await asyncio.shield(sending)
        except TimeoutError:
            sending.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise NotNow(f"no answer within {ATTEMPT_SECONDS_MAX:.0f} s") from None

    def _send(self, message: Message) -> Delivered:
        try:
            client = EventsApiV2Client(self._key, transport=Pinned(self._api_url, self._guard))
        except (httpx2.InvalidURL, ValueError):
            raise NotEver("its address is none") from None
        client.timeout = int(ATTEMPT_SECONDS_MAX / 3)  # of each step: looking up, connecting, the answer
        client.max_network_attempts = 0
        client.headers["User-Agent"] = USER_AGENT
        client.postprocess = _judge  # type: ignore[method-assign]
        try:
            with client:
                for last, worst in _by_subject(message):
                    _tell(client, last, worst)
        except (NotNow, NotEver):
            raise
        except AddressRefused:
            raise NotEver(f"its address is refused: {self._guard.refused}") from None
        except (PagerDutyError, httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            if self._guard.refused:
                raise NotEver(f"its address is refused: {self._guard.refused}") from None
            raise NotNow(f"the request failed ({type(error.__cause__ or error).__name__})") from None
        return Delivered("HTTP 202")

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _judge(response: httpx2.Response) -> None:
    """Raises NotNow or NotEver before the client sees an error: it would sleep on some, and retry by itself."""
    if not response.is_success:
        judged(response.status_code, retry_after(response.headers.get("Retry-After"), time.time()), final=True)


def _by_subject(message: Message) -> Iterator[tuple[NoticeInWords, NoticeInWords]]:
    """Last notice of each subject, which says whether the problem is over, and its worst one."""
    for subject in dict.fromkeys(item.subject for item in message.notices):
        about = [item for item in message.notices if item.subject == subject]
        yield about[-1], max(about, key=lambda item: RANK[item.severity])


def _tell(client: EventsApiV2Client, last: NoticeInWords, worst: NoticeInWords) -> None:
    source = urlsplit(last.link).netloc or "tenuto"
    key = f"tenuto:{source}:{last.subject}"
    if last.recovered:
        client.resolve(key)
        return
    details = {
        "experiment": last.experiment_name,
        "user": last.user,
        "trial": last.trial_id,
        "agent": last.agent_id,
        "error": worst.error,
        "log": "\n".join(worst.log_lines),
        "notice": last.id,
    }
    client.trigger(
        worst.why[:SUMMARY_CHARACTERS_MAX],
        source,
        dedup_key=key,
        severity=worst.severity,
        payload={"timestamp": iso_time(worst.time_us), "class": worst.event_type or "test", "component": last.subject},
        custom_details={name: value for name, value in details.items() if value},
        links=[{"href": last.link, "text": last.subject}],
    )


def _open(target: PagerDutyTarget, means: Means) -> PagerDuty:
    return PagerDuty(target.routing_key, target.api_url, means.guard)


PLUGIN = TargetPlugin(PagerDutyTarget, _open, lambda target: host_of(target.api_url), recovers=True)
