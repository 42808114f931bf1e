"""Opens the target of a webhook by its settings, which are encrypted in the table of secrets, under a name that no user has."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field, ValidationError

from tenuto.kernel import plugins
from tenuto.kernel.plugins import PluginError
from tenuto.kernel.secrets import Secrets
from tenuto.schemas.base import Model
from tenuto.schemas.webhooks import PluginTarget
from tenuto.schemas.webhooks import Target as TargetSettings
from tenuto.services.gateway.notices.adapters.addresses import Guard, Network
from tenuto.services.gateway.notices.adapters.targets.target import Means, NotEver, NotNow, Target, TargetPlugin

GROUP = "tenuto.notice_targets"
PLACE_CHARACTERS_MAX = 256
OWNER = ":webhook"
"""Owner of the secrets of targets; no user, as users' names begin with a letter."""
SECRET_BYTES = 32
ORPHAN_US = 3_600 * 1_000_000
"""Age at which settings without a webhook are removed: they were written, and the request that followed was refused."""


class OldSecret(Model):
    secret: str
    until_us: int


class Sealed(Model):
    """Settings and secrets of a target, as they are kept."""

    target: TargetSettings
    old_secrets: tuple[OldSecret, ...] = Field(default=(), max_length=10)

    def old(self, now_us: int) -> list[str]:
        """Earlier secrets that are still valid, the newest first."""
        return [old.secret for old in self.old_secrets if now_us < old.until_us]


def new_secret() -> str:
    return f"whsec_{base64.b64encode(os.urandom(SECRET_BYTES)).decode()}"


class BadSettings(ValueError):
    """Settings that a target of another package does not accept. `str(error)` shows no value, as values may be secret."""


def plugin_of(kind: str) -> TargetPlugin:
    """Raises PluginError."""
    found = plugins.load(GROUP, kind)
    if not isinstance(found, TargetPlugin):
        raise PluginError(f"{kind} of {GROUP} is a {type(found).__name__}; it must be a TargetPlugin (docs/plug-ins.md).")
    return found


def shown(target: TargetSettings) -> str:
    """Place of the target that users may see. Raises PluginError, BadSettings."""
    plugin = plugin_of(target.kind)
    return plugin.shown(_settings(plugin, target))[:PLACE_CHARACTERS_MAX]


def _settings(plugin: TargetPlugin, target: TargetSettings) -> Any:
    """Raises BadSettings."""
    if not isinstance(target, PluginTarget):
        return target
    try:
        return plugin.settings.model_validate({**target.settings, **target.secrets})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in wrong["loc"]) or "settings"
        raise BadSettings(
            f"target.{field}: {wrong['msg'].removeprefix('Value error, ')} (a target of kind {target.kind})"
        ) from None


class Vault:
    """Store of targets."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def keep(self, sealed_id: str, sealed: Sealed, now_us: int) -> None:
        """Raises SecretKeyError."""
        await self._secrets.set(OWNER, sealed_id, sealed.to_json().decode(), now_us)

    async def find(self, sealed_id: str) -> Sealed | None:
        """Stored target; None if it is missing, encrypted with another key or of another release. Raises SecretKeyError."""
        reference = f"{OWNER}/{sealed_id}"
        text = (await self._secrets.values([reference])).get(reference)
        try:
            return None if text is None else Sealed.from_json(text)
        except ValidationError:  # of another release
            return None

    async def forget_others(self, kept: Iterable[str], now_us: int) -> None:
        """Removes all but `kept`, except recent ones, whose webhook may be about to be recorded."""
        known = set(kept)
        for item in await self._secrets.names(OWNER):
            if item.name not in known and item.updated_us + ORPHAN_US < now_us:
                await self._secrets.remove(OWNER, item.name)

    async def forget(self, sealed_id: str) -> None:
        await self._secrets.remove(OWNER, sealed_id)


def open_target(sealed: Sealed, allowed: Sequence[Network]) -> Target:
    """Opens a target; the libraries of its kind are imported when the first one is opened. Raises NotEver if a package is missing
    or needs other settings, NotNow if its files cannot be read."""
    try:
        plugin = plugin_of(sealed.target.kind)
        return plugin.open(_settings(plugin, sealed.target), Means(Guard(allowed), allowed, sealed.old))
    except PluginError as error:
        raise NotEver(str(error)) from None
    except BadSettings as error:
        raise NotEver(str(error)) from None
    except ImportError as error:
        raise NotEver(f"the gateway lacks a library for it ({error.name})") from None
    except OSError as error:  # the target's trouble, and not the database's, which is waited for without limit
        raise NotNow(f"the plug-in of the target failed with {type(error).__name__}") from None
