"""Receivers of notices on loopback: a real SMTP server, and what apprise posts JSON to."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.receivers import Receiver

smtp = pytest.importorskip("aiosmtpd.smtp")


class JsonReceiver(Receiver):
    """What apprise's plugin `json://` posts to."""

    PASSWORD = "SECRETSECRET"

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/hook", self._hook), web.post("/elsewhere", self._hook)]

    async def _hook(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (answer := await self.fault(request)) is not None:
            return answer
        for name in ("version", "title", "message", "type"):
            if not body.get(name):
                self.complaints.append(f"no {name}")
        await self.take(body)
        return web.Response(status=200)


class MailReceiver(Receiver):
    """A real SMTP server (aiosmtpd) on loopback, with STARTTLS or TLS by a certificate of its own, which demands a login."""

    USER, PASSWORD = "ada@example.org", "SECRETSECRET"

    def __init__(self, directory: Path, security: str = "starttls") -> None:
        super().__init__()
        self.security = security
        self.certificate, self._context = own_certificate(directory)

    def login(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
        right = (data.login, data.password) == (self.USER.encode(), self.PASSWORD.encode())
        return smtp.AuthResult(success=right, handled=False)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        async with self.arrived:
            self.asked += 1
            self.arrived.notify_all()
        fault = self.faults.pop(0) if self.faults else self.always
        if fault is not None and fault.hang:
            await asyncio.sleep(3_600)
        if fault is not None and fault.cut:
            server.transport.abort()
            return "421 closing"
        if fault is not None:
            return f"{fault.status if fault.status in range(550, 560) else 451} not now"
        mail = message_from_bytes(envelope.content, policy=default)
        for name in ("Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted"):
            if not mail[name]:
                self.complaints.append(f"no {name}")
        if any(len(line) > 998 for line in envelope.content.splitlines()):
            self.complaints.append("a line is too long (RFC 5321)")
        body = mail.get_body()
        assert body is not None
        await self.take({"mail": mail, "text": body.get_content(), "to": list(envelope.rcpt_tos), "tls": session.ssl is not None})
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such user"
        if address.startswith("full"):
            return "452 mailbox is full"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Receiver]:
        def made() -> Any:
            starts = self.security == "starttls"
            return smtp.SMTP(
                self,
                tls_context=self._context if starts else None,
                require_starttls=starts,
                authenticator=self.login,
                auth_required=self.security != "none",
                auth_require_tls=starts,
                enable_SMTPUTF8=False,
            )

        context = self._context if self.security == "tls" else None
        server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0, ssl=context)
        try:
            self.url = f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
        finally:
            server.close()


def own_certificate(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate of localhost that nobody else signed, as a file, and a server's context with it."""
    certificate, key = directory / "server.pem", directory / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context
