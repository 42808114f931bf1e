"""What is mail's and apprise's own: refusals of a server, and what apprise's process may not do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.webhooks import AppriseTarget, MailTarget
from tenuto.services.gateway.notices.adapters.addresses import allowed_networks
from tenuto.services.gateway.notices.adapters.targets.opening import Sealed, open_target, shown
from tenuto.services.gateway.notices.adapters.targets.other import Other
from tenuto.services.gateway.notices.adapters.targets.target import NotEver, NotNow
from tests.contract.test_targets import LOOPBACK, MESSAGE, TOLD, WELL, _mail_settings
from tests.support.mail_receivers import JsonReceiver, MailReceiver
from tests.support.receivers import Fault
from tests.support.waiting import SECONDS_MAX


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MailReceiver]:
    receiver = MailReceiver(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(receiver.certificate))
    async with receiver.running():
        yield receiver


async def send(settings: MailTarget, message: Any = MESSAGE) -> str:
    made = open_target(Sealed(target=settings), LOOPBACK)
    try:
        return (await made.send(message)).answer
    finally:
        await made.close()


async def test_a_mail_says_what_why_the_last_lines_and_where(server: MailReceiver) -> None:
    assert await send(_mail_settings(server, "starttls")) == "SMTP 250"
    hostile = replace(WELL, why="well\r\nBcc: eve@example.org\n" + "ü" * 300)
    await send(_mail_settings(server, "starttls"), replace(MESSAGE, id="other", notices=(hostile,)))
    first, second = (item["mail"] for item in server.taken)
    text = server.taken[0]["text"]
    for part in (TOLD.why, TOLD.link, TOLD.error, *TOLD.log_lines, "ada"):
        assert part in text
    assert server.taken[0]["tls"]
    assert server.taken[0]["to"] == ["ada@example.org", "bob@example.org"]
    assert first["Subject"] == "[tenuto] Experiment 3 has failed after 4 trials."
    assert first["Message-ID"] == f"<{MESSAGE.id}@example.org>", "the same at each attempt"
    assert first["References"] == second["References"], "one conversation"
    assert second["Bcc"] is None
    assert second["Subject"].startswith("[tenuto] recovered: well Bcc: eve@example.org")
    assert server.complaints == []


@pytest.mark.parametrize(
    ("changes", "raises", "says"),
    [
        ({"password": "wrong"}, NotEver, "SMTP 535: it refuses the login"),
        ({"recipients": ("nobody@example.org",)}, NotEver, "SMTP 550: it refuses the recipients"),
        ({"recipients": ("full@example.org",)}, NotNow, "SMTP 452: it refuses the recipients"),
        ({"security": "none", "username": None, "password": None}, NotEver, "SMTP 530"),
        ({"security": "tls"}, NotNow, "it does not speak TLS"),
        ({"host": "nowhere.invalid"}, NotNow, "its name cannot be looked up"),
    ],
)
async def test_a_server_that_refuses(server: MailReceiver, changes: dict[str, Any], raises: type[Exception], says: str) -> None:
    with pytest.raises(raises) as failed:
        await send(_mail_settings(server, **{"security": "starttls"} | changes))
    assert says in str(failed.value)
    assert MailReceiver.PASSWORD not in str(failed.value)
    assert server.taken == []


async def test_some_recipients_are_refused(server: MailReceiver) -> None:
    answer = await send(_mail_settings(server, "starttls", recipients=("ada@example.org", "nobody@example.org")))
    assert answer == "SMTP 250, but 1 of 2 recipients were refused"
    server.faults = [Fault(554)]
    with pytest.raises(NotEver, match="SMTP 554"):
        await send(_mail_settings(server, "starttls"))


async def test_no_password_without_trust(server: MailReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    asked: list[Any] = []
    monkeypatch.setattr(server, "login", lambda *arguments: asked.append(arguments))
    with pytest.raises(NotNow, match="certificate"):
        await send(_mail_settings(server, "starttls"))
    plain = MailReceiver(server.certificate.parent, "none")
    async with plain.running():
        with pytest.raises(NotEver, match="STARTTLS"):
            await send(_mail_settings(plain, "starttls"))
        assert plain.taken == []
    assert asked == []


def test_what_is_shown_of_them() -> None:
    mail = MailTarget(
        host="mail.example.org", sender="a@b.org", recipients=("c@d.org", "e@f.org"), username="u", password="secret"
    )
    assert shown(mail) == "c@d.org and 1 more by mail.example.org"
    assert shown(AppriseTarget(url="discord://id/token")) == "discord"
    for wrong in ({"security": "none"}, {"username": None}, {"sender": "a@b.org\r\nX: y"}, {"recipients": ()}):
        with pytest.raises(ValueError, match=r".+"):
            MailTarget.model_validate(mail.model_dump() | wrong)


# Apprise's process.

SCRIPT = """
import os, socket, subprocess, sys, urllib.request
from tenuto.services.gateway.notices.adapters.addresses import Guard, allowed_networks
from tenuto.services.gateway.notices.adapters.targets.apprise_process import Judge
import requests, http.client, ssl, encodings.idna, stringprep
requests.Session().get_adapter('http://x')
guard = Guard(allowed_networks('127.0.0.1'))
judge = Judge(guard)
sys.addaudithook(judge)
url, elsewhere = sys.argv[1:3]
assert requests.get(url + '/ok', timeout=60).status_code == 204
judge.armed = True
def refused(what, *arguments, **named):
    try:
        what(*arguments, **named)
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print('allowed')
refused(requests.get, url + '/redirect', timeout=60)
refused(requests.get, elsewhere, timeout=60)
refused(socket.create_connection, ('127.0.0.2', 9), 2)
refused(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b'x', ('10.0.0.1', 514))
refused(socket.socket(socket.AF_UNIX).connect, '/run/docker.sock')
refused(socket.socket().connect, ('localhost', 9))
refused(socket.socket().bind, ('127.0.0.1', 0))
refused(open, '/etc/passwd')
refused(open, '/tmp/written-by-apprise', 'w')
refused(os.listdir, '/etc')
refused(subprocess.run, ['true'])
refused(os.system, 'true')
refused(os.fork)
print('reads its own', bool(open(requests.__file__).read()))
"""


async def test_what_a_plugin_may_not_do(tmp_path: Path) -> None:
    class Redirecting(JsonReceiver):
        def routes(self) -> Any:
            from aiohttp import web

            async def ok(_: web.Request) -> web.Response:
                return web.Response(status=204)

            async def redirect(_: web.Request) -> web.Response:
                return web.Response(status=302, headers={"Location": self.url.replace("127.0.0.1", "127.0.0.2")})

            return [web.get("/ok", ok), web.get("/redirect", redirect)]

    receiver = Redirecting()
    async with receiver.running():
        elsewhere = receiver.url.replace("127.0.0.1", "127.0.0.3")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SCRIPT, receiver.url, elsewhere, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
    lines = said.decode().splitlines()
    assert "127.0.0.2 is no public address" in lines[0], "where a redirect leads to"
    assert "127.0.0.3 is no public address" in lines[1]
    assert "127.0.0.2 is no public address" in lines[2]
    assert "10.0.0.1 is no public address" in lines[3]
    assert lines[4:6] == ["AddressRefused it leads to no address of a network"] * 2
    assert lines[6] == "PermissionError socket.bind is not allowed here"
    assert lines[7:9] == ["PermissionError this file is not read here", "PermissionError no file is written here"]
    assert [line.partition(" ")[0] for line in lines[9:13]] == ["PermissionError"] * 4
    assert lines[13:] == ["reads its own True"]
    assert not Path("/tmp/written-by-apprise").exists()


REBINDING = """
import socket
real, asked = socket.getaddrinfo, []
def changing(host, port, *more, **named):
    asked.append(host)
    return real('127.0.0.2' if host == 'hooks.example.com' else host, port, *more, **named)
socket.getaddrinfo = changing
from tenuto.services.gateway.notices.adapters.targets import apprise_process
apprise_process.main()
"""


async def test_a_name_that_means_another_address() -> None:
    made = Other("json://hooks.example.com:9/hook", allowed_networks("127.0.0.1"), ("-c", REBINDING))
    with pytest.raises(NotEver, match=r"127\.0\.0\.2 is no public address"):
        await made.send(MESSAGE)


@pytest.mark.parametrize("url", ["nosuchscheme://x/y", "discord://x", "file:///etc/passwd", "syslog://x", "dbus://x"])
async def test_an_address_that_is_none(url: str) -> None:
    made = open_target(Sealed(target=AppriseTarget(url=url)), LOOPBACK)
    with pytest.raises((NotEver, NotNow)):
        await made.send(MESSAGE)


async def test_nobody_sees_its_secrets_and_nothing_is_left() -> None:
    receiver = JsonReceiver()
    receiver.faults = [Fault(hang=True)]
    async with receiver.running():
        url = receiver.url.replace("http://", f"json://ada:{receiver.PASSWORD}@")
        made = open_target(Sealed(target=AppriseTarget(url=f"{url}/hook")), LOOPBACK)
        sending = asyncio.create_task(made.send(MESSAGE))
        await asyncio.wait_for(receiver.wait_asked(1), SECONDS_MAX)
        pids = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        [child] = [pid for pid in pids if b"apprise_process" in proc(pid, "cmdline")]
        assert b"tenuto" in proc(child, "cmdline")
        assert receiver.PASSWORD.encode() not in proc(child, "cmdline") + proc(child, "environ")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert b"apprise_process" not in proc(child, "cmdline"), "it is ended with the attempt"


def proc(pid: str, name: str) -> bytes:
    """What everybody on this machine sees of a process; empty where it is over."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
