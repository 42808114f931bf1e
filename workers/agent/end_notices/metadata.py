"""The metadata service of a machine, asked with bounds on time and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

ANSWER_SECONDS_MAX = 5.0
"""Longest wait for an answer, beside the time that the question itself allows: the service is on the machine's own host."""
ANSWER_BYTES_MAX = 16 << 10
"""Largest answer that is read: a notice has a hundred bytes, a list of maintenance some thousand."""
CONNECTIONS_MAX = 4


class NoAnswer(Exception):
    """`str(error)` is the end of a sentence that begins with the service."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


class MetadataService:
    """Opened by the first question. Proxies of the environment, cookies and redirects have no business there: they would send the
    machine's own credentials elsewhere."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        waits_seconds: float = 0.0,
    ) -> Answer:
        """The answer, whatever its status. `waits_seconds`: time that the service itself waits for a change. Raises NoAnswer."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS_MAX + waits_seconds, connect=ANSWER_SECONDS_MAX)
        given = {"Accept-Encoding": "identity", **(headers or {})}
        try:
            async with self._session.request(
                method, self.address + path, headers=given, params=query, timeout=timeout, allow_redirects=False
            ) as response:
                body = bytearray()
                async for part in response.content.iter_chunked(1 << 12):
                    body += part
                    if len(body) > ANSWER_BYTES_MAX:
                        response.close()
                        raise NoAnswer(f"answers with more than {ANSWER_BYTES_MAX >> 10} KiB")
                return Answer(response.status, response.headers, body.decode(errors="replace"))
        except TimeoutError:
            raise NoAnswer("does not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(f"cannot be asked ({type(error).__name__})") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
