"""Any receiver of signed HTTP by the Standard Webhooks convention (https://www.standardwebhooks.com): a POST of JSON with its id,
the time of this attempt and a signature by each valid secret, so that a secret can be changed without a gap."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Sequence
from hashlib import sha256

import aiohttp

from tenuto.schemas.webhooks import HttpTarget
from tenuto.services.gateway.notices.adapters.addresses import Guard
from tenuto.services.gateway.notices.adapters.guarded_http import Channel, failure
from tenuto.services.gateway.notices.adapters.messages import Message, as_data
from tenuto.services.gateway.notices.adapters.targets.target import (
    ANSWER_BYTES_MAX,
    Delivered,
    Means,
    TargetPlugin,
    host_of,
    judged,
    retry_after,
)


class SignedHttp:
    def __init__(self, url: str, secrets: Callable[[int], Sequence[str]], guard: Guard) -> None:
        """`secrets`: (now, in microseconds) -> the `whsec_...` that are valid then."""
        self._url, self._guard, self._secrets = url, guard, secrets
        self._http = Channel(guard)

    async def send(self, message: Message) -> Delivered:
        body = json.dumps(as_data(message), ensure_ascii=False, separators=(",", ":"))
        self._guard.refused = ""
        try:
            async with self._http.session().post(
                self._url, data=body.encode(), headers=self._headers(message.id, body), allow_redirects=False
            ) as response:
                await response.content.read(ANSWER_BYTES_MAX)
                asked = retry_after(response.headers.get("Retry-After"), time.time())
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise failure(error, self._guard) from None
        return judged(status, asked)

    def _headers(self, id: str, body: str) -> dict[str, str]:
        now = time.time()
        timestamp = str(int(now))
        signed = f"{id}.{timestamp}.{body}".encode()
        return {
            "Content-Type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(_signature(secret, signed) for secret in self._secrets(int(now * 1e6))),
        }

    async def close(self) -> None:
        await self._http.close()


def _signature(secret: str, signed: bytes) -> str:
    """Signature of the convention's first version. Raises ValueError if the secret is no base64."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return f"v1,{base64.b64encode(hmac.digest(key, signed, sha256)).decode()}"


def _open(target: HttpTarget, means: Means) -> SignedHttp:
    assert target.secret is not None
    secret = target.secret
    return SignedHttp(target.url, lambda now_us: [secret, *means.old_secrets(now_us)], means.guard)


PLUGIN = TargetPlugin(HttpTarget, _open, lambda target: host_of(target.url))
