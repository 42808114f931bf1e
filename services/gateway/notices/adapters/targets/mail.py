"""E-mail through an SMTP server of the user's, by aiosmtplib: encrypted by STARTTLS or from the first byte, with login."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime

import aiosmtplib

from tenuto.schemas.webhooks import MailTarget
from tenuto.services.gateway.notices.adapters.addresses import AddressRefused, Guard
from tenuto.services.gateway.notices.adapters.guarded_http import Lookup
from tenuto.services.gateway.notices.adapters.messages import Message, in_words
from tenuto.services.gateway.notices.adapters.targets import target
from tenuto.services.gateway.notices.adapters.targets.target import Delivered, Means, NotEver, NotNow, TargetPlugin

SUBJECT_CHARACTERS_MAX = 200
BODY_CHARACTERS_MAX = 200_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class Mail:
    def __init__(self, settings: MailTarget, guard: Guard) -> None:
        self._settings, self._guard, self._lookup = settings, guard, Lookup()

    async def send(self, message: Message) -> Delivered:
        self._guard.refused = ""
        try:
            async with asyncio.timeout(target.ATTEMPT_SECONDS_MAX):
                return await self._sent(composed(message, self._settings))
        except AddressRefused:
            raise NotEver(f"its address is refused: {self._guard.refused}") from None
        except aiosmtplib.SMTPException as error:
            raise _failure(error) from None
        except TimeoutError:
            raise NotNow(f"no answer within {target.ATTEMPT_SECONDS_MAX:.0f} s") from None
        except ssl.SSLError:
            raise NotNow("its certificate cannot be trusted, or it does not speak TLS") from None
        except socket.gaierror:
            raise NotNow("its name cannot be looked up") from None
        except (OSError, ValueError) as error:
            raise NotNow(f"it cannot be connected to ({type(error).__name__})") from None

    async def _sent(self, mail: EmailMessage) -> Delivered:
        settings = self._settings
        client = aiosmtplib.SMTP(
            hostname=settings.host,
            port=None,
            sock=await self._connected(),
            timeout=target.ATTEMPT_SECONDS_MAX,
            use_tls=settings.security == "tls",
            start_tls=False,  # begun below, where a server that offers none is refused
            local_hostname="tenuto",
        )
        try:
            await client.connect()
            if settings.security == "starttls":
                await client.ehlo()
                if not client.supports_extension("starttls"):
                    raise NotEver("it does not offer STARTTLS, and nothing is sent readable")
                await client.starttls()
            if settings.username is not None:
                await client.ehlo()
                if not client.supports_extension("auth"):
                    raise NotEver("it offers no login")
                await client.login(settings.username, settings.password or "")
            refused, _ = await client.send_message(mail, sender=settings.sender, recipients=list(settings.recipients))
        finally:
            client.close()
        but = f", but {len(refused)} of {len(settings.recipients)} recipients were refused" if refused else ""
        return Delivered(f"SMTP 250{but}")

    async def _connected(self) -> socket.socket:
        """Connection to an address that the guard allows. Raises AddressRefused and OSError."""
        loop, last = asyncio.get_running_loop(), OSError("no address")
        for found in await self._lookup.resolve(self._settings.host, self._settings.port):
            place = (found["host"], found["port"])
            connection = self._guard.socket((found["family"], socket.SOCK_STREAM, found["proto"], "", place))
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, place)
                return connection
            except OSError as error:
                connection.close()
                last = error
            except BaseException:
                connection.close()
                raise
        raise last

    async def close(self) -> None:
        await self._lookup.close()


def composed(message: Message, settings: MailTarget) -> EmailMessage:
    """The mail; its id is the same at each attempt, and mails about one subject are one conversation."""
    mail = EmailMessage()
    first = message.notices[0]
    worst = "error" if any(item.severity == "error" for item in message.notices) else first.severity
    mail["Subject"] = f"[tenuto] {'recovered: ' if first.recovered else ''}{_line(message.title)}"
    mail["From"] = Address("Tenuto", addr_spec=settings.sender)
    mail["To"] = [Address(addr_spec=item) for item in settings.recipients]
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.time_us / 1e6, UTC))
    domain = settings.sender.rpartition("@")[2]
    mail["Message-ID"] = f"<{message.id}@{domain}>"
    mail["References"] = f"<{first.subject.replace('/', '.')}.{message.webhook}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"  # so that no automatic reply comes back (RFC 3834)
    mail["X-Priority"] = {"error": "2", "warning": "3", "info": "4"}[worst]
    mail.set_content("\n".join(in_words(message))[:BODY_CHARACTERS_MAX] + "\n", cte="base64")
    return mail


def _line(text: str) -> str:
    return _CONTROL.sub(" ", text)[:SUBJECT_CHARACTERS_MAX]


def _failure(error: aiosmtplib.SMTPException) -> NotNow | NotEver:
    """Outcome of an error, by its code: 4yz is temporary, 5yz permanent (RFC 5321). The server's words are left out, as they may
    quote the message."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return _by_code([item.code for item in error.recipients], "refuses the recipients")
    if isinstance(error, aiosmtplib.SMTPAuthenticationError):
        return _by_code([error.code], "refuses the login")
    if isinstance(error, aiosmtplib.SMTPSenderRefused):
        return _by_code([error.code], "refuses the sender")
    if isinstance(error, aiosmtplib.SMTPNotSupported):
        return NotEver("it lacks something that the message needs")
    if isinstance(error, aiosmtplib.SMTPTimeoutError):
        return NotNow(f"no answer within {target.ATTEMPT_SECONDS_MAX:.0f} s")
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return _by_code([error.code], "refuses the message")
    if isinstance(error.__cause__, ssl.SSLError):
        return NotNow("its certificate cannot be trusted, or it does not speak TLS")
    return NotNow(f"the connection broke ({type(error).__name__})")


def _by_code(codes: Iterable[int], what: str) -> NotNow | NotEver:
    known = sorted(set(codes))
    text = f"SMTP {', '.join(map(str, known))}: it {what}"
    return NotEver(text) if known and all(500 <= code < 600 for code in known) else NotNow(text)


def _open(settings: MailTarget, means: Means) -> Mail:
    return Mail(settings, means.guard)


def _shown(settings: MailTarget) -> str:
    others = len(settings.recipients) - 1
    return f"{settings.recipients[0]}{f' and {others} more' if others else ''} by {settings.host}"


PLUGIN = TargetPlugin(MailTarget, _open, _shown)
