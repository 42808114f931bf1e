"""All other services (Teams, Discord, Telegram, ...) through apprise.

Its plugins open their own connections, so each attempt is a process of its own, which judges every connection, starts no
program, writes no file and ends in time. Secrets are passed to it by a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence

from tenuto.schemas.webhooks import AppriseTarget
from tenuto.services.gateway.notices.adapters.addresses import Network
from tenuto.services.gateway.notices.adapters.messages import Message, in_words
from tenuto.services.gateway.notices.adapters.targets import target
from tenuto.services.gateway.notices.adapters.targets.target import Delivered, Means, NotEver, NotNow, TargetPlugin

PROCESSES_MAX = 16
"""Most processes at once, for all webhooks: each has some 60 MB for a second or two. Others wait for their turn."""
BODY_CHARACTERS_MAX = 20_000
"""Most characters of a message; a service that takes less gets the beginning."""
ANSWER_BYTES_MAX = 4_096
INHERITED = ("PATH", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH")
"""Variables that the process needs to start and to trust certificates: no proxies and no secrets."""
COMMAND = ("-m", "tenuto.services.gateway.notices.adapters.targets.apprise_process")
_turns = asyncio.Semaphore(PROCESSES_MAX)


class Other:
    def __init__(self, url: str, allowed: Sequence[Network], command: Sequence[str] = COMMAND) -> None:
        self._url, self._allowed, self._command = url, [str(item) for item in allowed], command

    async def send(self, message: Message) -> Delivered:
        severities = {item.severity for item in message.notices}
        order = {
            "url": self._url,
            "allowed": self._allowed,
            "title": message.title[:200],
            "body": "\n".join(in_words(message))[:BODY_CHARACTERS_MAX],
            "kind": next((kind for name, kind in KINDS if name in severities), "info"),
            "seconds": target.ATTEMPT_SECONDS_MAX,
        }
        if all(item.recovered for item in message.notices):
            order["kind"] = "success"
        async with _turns:
            answer = await self._answer(json.dumps(order).encode())
        if answer.get("refused"):
            raise NotEver(f"its address is refused: {answer['refused']}")
        if answer.get("missing"):
            raise NotEver("the gateway lacks a library for it: pip install 'tenuto[apprise]'")
        if answer.get("unknown"):
            raise NotEver("apprise cannot read its address, or lacks a library for it")
        if not answer.get("taken"):
            raise NotNow("apprise could not deliver it")
        return Delivered("apprise: taken")

    async def _answer(self, order: bytes) -> dict[str, object]:
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment, start_new_session=True
            )
        except OSError as error:
            raise NotNow(f"the gateway cannot start a process ({type(error).__name__})") from None
        try:
            async with asyncio.timeout(target.ATTEMPT_SECONDS_MAX):
                said = await _exchange(process, order)
        except TimeoutError:
            raise NotNow(f"no answer within {target.ATTEMPT_SECONDS_MAX:.0f} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        try:
            found = json.loads(said)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise NotNow("apprise's process ended without an answer (it may have needed too much memory)")
        return found

    async def close(self) -> None:
        pass


KINDS = (("error", "failure"), ("warning", "warning"))
"""Severity -> apprise's kind of a notice, the worst first."""


async def _exchange(process: Process, order: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(order)
        await process.stdin.drain()
        process.stdin.close()
    said = await process.stdout.read(ANSWER_BYTES_MAX)
    await process.wait()
    return said


def _open(settings: AppriseTarget, means: Means) -> Other:
    return Other(settings.url, means.allowed)


PLUGIN = TargetPlugin(AppriseTarget, _open, lambda settings: settings.url.partition("://")[0])
