"""Makes the target of a webhook, of what is kept of it: encrypted, in the table of secrets, under an id that no user has."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from tenuto.kernel.secrets import Secrets
from tenuto.schemas.base import Model
from tenuto.schemas.webhooks import AppriseTarget, HttpTarget, MailTarget, PagerDutyTarget, SlackTarget
from tenuto.schemas.webhooks import Target as TargetSettings
from tenuto.services.gateway.notices.adapters.addresses import Guard, Network
from tenuto.services.gateway.notices.adapters.targets.target import NotEver, Target

OWNER = ":webhook"
"""Of its secrets; users' names begin with a letter."""
SECRET_BYTES = 32
ORPHAN_US = 3_600 * 1_000_000
"""So old is what is kept of no webhook when it is removed: it was written, and the request that followed was refused."""


class OldSecret(Model):
    secret: str
    until_us: int


class Sealed(Model):
    """What is kept of a target."""

    target: TargetSettings
    old_secrets: tuple[OldSecret, ...] = Field(default=(), max_length=10)

    def signing(self, now_us: int) -> list[str]:
        """Secrets to sign with, the newest first."""
        assert isinstance(self.target, HttpTarget)
        assert self.target.secret is not None
        return [self.target.secret, *(old.secret for old in self.old_secrets if now_us < old.until_us)]


def new_secret() -> str:
    return f"whsec_{base64.b64encode(os.urandom(SECRET_BYTES)).decode()}"


def shown(target: TargetSettings) -> str:
    """What people may see of the target: an address may be as secret as a password."""
    if isinstance(target, SlackTarget):
        return f"channel {target.channel}" if target.token is not None else _host(target.url or "")
    if isinstance(target, MailTarget):
        others = len(target.recipients) - 1
        return f"{target.recipients[0]}{f' and {others} more' if others else ''} by {target.host}"[:256]
    if isinstance(target, AppriseTarget):
        return target.url.partition("://")[0]
    return _host(target.api_url if isinstance(target, PagerDutyTarget) else target.url)


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"[:256]


class Vault:
    """Where targets are kept."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def keep(self, sealed_id: str, sealed: Sealed, now_us: int) -> None:
        """Raises SecretKeyError."""
        await self._secrets.set(OWNER, sealed_id, sealed.to_json().decode(), now_us)

    async def find(self, sealed_id: str) -> Sealed | None:
        """None: it is not there, or was encrypted with another key. Raises SecretKeyError."""
        reference = f"{OWNER}/{sealed_id}"
        text = (await self._secrets.values([reference])).get(reference)
        try:
            return None if text is None else Sealed.from_json(text)
        except ValidationError:  # of another release
            return None

    async def forget_others(self, kept: Iterable[str], now_us: int) -> None:
        """All but these, where nobody is about to make a webhook of it."""
        known = set(kept)
        for item in await self._secrets.names(OWNER):
            if item.name not in known and item.updated_us + ORPHAN_US < now_us:
                await self._secrets.remove(OWNER, item.name)

    async def forget(self, sealed_id: str) -> None:
        await self._secrets.remove(OWNER, sealed_id)


def open_target(sealed: Sealed, allowed: Sequence[Network]) -> Target:
    """Raises NotEver where a library is missing. What a target needs is imported when the first of its kind is opened."""
    target, guard = sealed.target, Guard(allowed)
    try:
        if isinstance(target, HttpTarget):
            from tenuto.services.gateway.notices.adapters.targets.signed_http import SignedHttp

            return SignedHttp(target.url, sealed.signing, guard)
        if isinstance(target, SlackTarget):
            from tenuto.services.gateway.notices.adapters.targets.slack import SlackBot, SlackWebhook

            if target.token is not None:
                return SlackBot(target.token, target.channel or "", target.api_url, guard)
            return SlackWebhook(target.url or "", guard)
        if isinstance(target, MailTarget):
            from tenuto.services.gateway.notices.adapters.targets.mail import Mail

            return Mail(target, guard)
        if isinstance(target, AppriseTarget):
            from tenuto.services.gateway.notices.adapters.targets.other import Other

            return Other(target.url, allowed)
        from tenuto.services.gateway.notices.adapters.targets.pager import PagerDuty

        return PagerDuty(target.routing_key, target.api_url, guard)
    except ImportError as error:
        raise NotEver(f"the gateway lacks a library for it ({error.name})") from None
