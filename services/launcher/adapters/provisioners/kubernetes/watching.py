"""Watch of a pool's pods. It tells that something has changed, not what: its reader then asks for all pods and compares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from tenuto.services.launcher.adapters.provisioners.kubernetes.door import (
    Document,
    KubernetesClient,
    KubernetesRefusal,
    KubernetesUnreachable,
)

WATCH_SECONDS = 240
"""Time after which the API server ends a watch, and the next goes on where it was: a connection that died unnoticed ends, too."""
PAUSE_SECONDS = 1.0
"""Pause between two watches, also if the server ends each at once."""
_EXPIRED = 410


async def changes(door: KubernetesClient, selector: str) -> AsyncGenerator[None, None]:
    """Yields at each change of such a pod, and when changes may have been missed. A watch that ends or breaks goes on from the
    last version that it told; where the server has forgotten that version (410), it begins anew at the present one. Raises
    KubernetesRefusal, and KubernetesUnreachable where a watch breaks without having told anything.

    Deep, because a generator inside this one would not be closed with it."""
    version = ""
    while True:
        if not version:
            version = _version(await door.list_pods(selector, 1, ""))
            yield
        told = False
        try:
            async with aclosing(door.watch_pods(selector, version, WATCH_SECONDS)) as events:
                async for event in events:
                    version, told = _version_of(event) or version, True
                    if event.get("type") != "BOOKMARK":
                        yield
        except KubernetesRefusal as error:
            if error.status != _EXPIRED:
                raise
            version = ""
        except KubernetesUnreachable:
            if not told:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


def _version_of(event: Document) -> str:
    """Raises KubernetesRefusal, also where the server has forgotten the version that was asked for."""
    found: Any = event.get("object")
    if not isinstance(found, dict):
        return ""
    if event.get("type") == "ERROR":
        raise KubernetesRefusal(int(found.get("code") or 500), str(found.get("reason") or ""), str(found.get("message") or ""))
    return _version(found)


def _version(body: Document) -> str:
    return str((body.get("metadata") or {}).get("resourceVersion") or "")
