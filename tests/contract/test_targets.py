"""What every target of notices promises, each against a receiver on loopback that checks and answers as the real one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.webhooks import AppriseTarget, HttpTarget, MailTarget, PagerDutyTarget, PluginTarget, SlackTarget
from tenuto.services.gateway.notices.adapters.addresses import allowed_networks
from tenuto.services.gateway.notices.adapters.messages import Message, NoticeInWords
from tenuto.services.gateway.notices.adapters.targets import opening, target
from tenuto.services.gateway.notices.adapters.targets.opening import Sealed, new_secret, open_target
from tenuto.services.gateway.notices.adapters.targets.target import NotEver, NotNow, Target
from tests.support.example_plugins import importable
from tests.support.mail_receivers import JsonReceiver, MailReceiver
from tests.support.receivers import Fault, NtfyReceiver, PagerDutyReceiver, Receiver, SignedReceiver, SlackReceiver
from tests.support.waiting import SECONDS_MAX

LOOPBACK = allowed_networks("127.0.0.0/8")
TOLD = NoticeInWords(
    id="00000000-0000-5000-8000-000000000001",
    number=1,
    time_us=1_700_000_000_000_000,
    event_type="ExperimentFailed",
    severity="error",
    recovered=False,
    why="Experiment 3 has failed after 4 trials.",
    subject="experiment/3",
    link="http://cluster.example:8080/experiments/3",
    experiment_id=3,
    experiment_name="digits <b>&amp;</b>",
    user="ada",
    error="model_def.py:12: ValueError: ```quoted```",
    log_lines=("epoch 1", "<boom> & more", "x" * 200),
)
MESSAGE = Message(id=TOLD.id, webhook="pager", time_us=1_700_000_001_000_000, notices=(TOLD,))
WELL = replace(
    TOLD, number=2, severity="info", recovered=True, why="Experiment 3 has completed.", event_type="ExperimentCompleted"
)


@dataclass
class Case:
    receiver: Receiver
    open: Callable[..., Target]
    """With other networks allowed, if any are given."""
    secrets: tuple[str, ...]
    reads_answers: bool = True
    """It sees Retry-After and redirects."""


async def _http(_: Path) -> Case:
    secret = new_secret()
    receiver = SignedReceiver(secret)
    return Case(
        receiver,
        lambda allowed=LOOPBACK: open_target(Sealed(target=HttpTarget(url=f"{receiver.url}/hook", secret=secret)), allowed),
        (secret,),
    )


async def _slack_webhook(_: Path) -> Case:
    receiver = SlackReceiver()

    def opened(allowed: Any = LOOPBACK) -> Target:
        return open_target(Sealed(target=SlackTarget(url=f"{receiver.url}/services/T000/B000/SECRETSECRET")), allowed)

    return Case(receiver, opened, ("SECRETSECRET",))


async def _slack_bot(_: Path) -> Case:
    receiver = SlackReceiver()

    def opened(allowed: Any = LOOPBACK) -> Target:
        settings = SlackTarget(token=receiver.TOKEN, channel="C024BE91L", api_url=f"{receiver.url}/api/")
        return open_target(Sealed(target=settings), allowed)

    return Case(receiver, opened, (receiver.TOKEN,))


async def _pagerduty(_: Path) -> Case:
    receiver = PagerDutyReceiver()
    return Case(
        receiver,
        lambda allowed=LOOPBACK: open_target(
            Sealed(target=PagerDutyTarget(routing_key=receiver.KEY, api_url=receiver.url)), allowed
        ),
        (receiver.KEY,),
    )


def _mail_settings(receiver: Receiver, security: Any, **changes: Any) -> MailTarget:
    values = {
        "host": "127.0.0.1",
        "port": int(receiver.url.rpartition(":")[2]),
        "security": security,
        "sender": "tenuto@example.org",
        "recipients": ("ada@example.org", "bob@example.org"),
    }
    login = {} if security == "none" else {"username": MailReceiver.USER, "password": MailReceiver.PASSWORD}
    return MailTarget.model_validate(values | login | changes)


def _mail(security: Any) -> Callable[[Path], Awaitable[Case]]:
    async def made(directory: Path) -> Case:
        receiver = MailReceiver(directory, security)
        return Case(
            receiver,
            lambda allowed=LOOPBACK: open_target(Sealed(target=_mail_settings(receiver, security)), allowed),
            (MailReceiver.PASSWORD,),
            reads_answers=False,
        )

    return made


async def _apprise(_: Path) -> Case:
    receiver = JsonReceiver()

    def opened(allowed: Any = LOOPBACK) -> Target:
        url = receiver.url.replace("http://", f"json://ada:{receiver.PASSWORD}@")
        return open_target(Sealed(target=AppriseTarget(url=f"{url}/hook")), allowed)

    return Case(receiver, opened, (receiver.PASSWORD,), reads_answers=False)


async def _plugin(_: Path) -> Case:
    receiver = NtfyReceiver()

    def opened(allowed: Any = LOOPBACK) -> Target:
        given = {"settings": {"server": receiver.url, "topic": receiver.TOPIC}, "secrets": {"token": receiver.TOKEN}}
        return open_target(Sealed(target=PluginTarget.model_validate({"kind": "ntfy", **given})), allowed)

    return Case(receiver, opened, (receiver.TOKEN,))


CASES: dict[str, Callable[[Path], Awaitable[Case]]] = {
    "http": _http,
    "slack webhook": _slack_webhook,
    "slack bot": _slack_bot,
    "pagerduty": _pagerduty,
    "mail with starttls": _mail("starttls"),
    "mail with tls": _mail("tls"),
    "mail": _mail("none"),
    "apprise": _apprise,
    "plug-in": _plugin,
}


@pytest.fixture(params=CASES)
async def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    found = await CASES[request.param](tmp_path)
    if isinstance(found.receiver, MailReceiver):
        monkeypatch.setenv("SSL_CERT_FILE", str(found.receiver.certificate))
    plugin = request.param == "plug-in"
    with importable(request.getfixturevalue("example_plugins")) if plugin else nullcontext():
        async with found.receiver.running():
            yield found


@pytest.fixture
async def opened(case: Case) -> AsyncIterator[Target]:
    made = case.open()
    yield made
    await made.close()


async def test_a_message_is_taken(case: Case, opened: Target) -> None:
    done = await opened.send(MESSAGE)
    assert case.receiver.complaints == []
    assert len(case.receiver.taken) == 1
    assert "Experiment 3 has failed" in str(case.receiver.taken[0])
    assert "boom" in str(case.receiver.taken[0])
    for what in (TOLD.link, "ValueError", "epoch 1"):
        assert what in str(case.receiver.taken[0]), "where, why, and the last lines"
    assert done.answer


async def test_a_grouped_message_is_taken(case: Case, opened: Target) -> None:
    many = tuple(replace(TOLD, number=number, why=f"Trial 3-{number} has failed.") for number in range(1, 101))
    await opened.send(replace(MESSAGE, notices=many))
    assert case.receiver.complaints == []
    assert len(case.receiver.taken) == 1


async def test_a_long_message_is_taken(case: Case, opened: Target) -> None:
    long = replace(TOLD, why="w" * 5_000, error="e" * 2_000, log_lines=("`" * 200,) * 10, experiment_name="n" * 256)
    await opened.send(replace(MESSAGE, notices=(long,)))
    assert case.receiver.complaints == []


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_receiver_that_fails_is_worth_another_attempt(case: Case, opened: Target, status: int) -> None:
    case.receiver.faults = [Fault(status)]
    with pytest.raises(NotNow) as failed:
        await opened.send(MESSAGE)
    assert case.receiver.asked == 1, "a target tries once: the schedule is the webhook's"
    assert not any(secret in failed.value.answer for secret in case.secrets)
    await opened.send(MESSAGE)
    assert len(case.receiver.taken) == 1


async def test_a_busy_receiver_says_when_to_come_again(case: Case, opened: Target) -> None:
    case.receiver.faults = [Fault(429, {"Retry-After": "37"})]
    with pytest.raises(NotNow) as failed:
        await opened.send(MESSAGE)
    assert failed.value.retry_after_seconds == (37.0 if case.reads_answers else None)
    assert case.receiver.asked == 1


async def test_a_connection_that_breaks_is_worth_another_attempt(case: Case, opened: Target) -> None:
    case.receiver.faults = [Fault(cut=True)]
    with pytest.raises(NotNow) as failed:
        await opened.send(MESSAGE)
    assert not any(secret in failed.value.answer for secret in case.secrets)
    await opened.send(MESSAGE)


async def test_a_receiver_that_hangs_is_left(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("guarded_http", "targets.slack", "targets.pager", "targets.target"):  # others take it from the last one
        monkeypatch.setattr(f"tenuto.services.gateway.notices.adapters.{module}.ATTEMPT_SECONDS_MAX", 1.0, raising=False)
    case.receiver.faults = [Fault(hang=True)]
    made = case.open()
    try:
        with pytest.raises(NotNow):
            await asyncio.wait_for(made.send(MESSAGE), SECONDS_MAX)
    finally:
        await made.close()


async def test_a_redirect_is_not_followed(case: Case, opened: Target) -> None:
    case.receiver.faults = [Fault(307, {"Location": f"{case.receiver.url}/elsewhere"})]
    with pytest.raises(NotEver if case.reads_answers else NotNow):
        await opened.send(MESSAGE)
    assert case.receiver.asked == 1
    assert case.receiver.taken == []


async def test_an_address_that_is_not_public_gets_no_request(case: Case) -> None:
    made = case.open(())
    try:
        with pytest.raises(NotEver, match=r"127\.0\.0\.1 is no public address"):
            await made.send(MESSAGE)
    finally:
        await made.close()
    assert case.receiver.asked == 0


async def test_nobody_listens(case: Case) -> None:
    url, case.receiver.url = case.receiver.url, f"{case.receiver.url.partition(':')[0]}://127.0.0.1:9"
    made = case.open()
    case.receiver.url = url
    try:
        with pytest.raises(NotNow):
            await made.send(MESSAGE)
    finally:
        await made.close()


# What is one target's own.


async def test_signatures_of_two_secrets() -> None:
    old, new = new_secret(), new_secret()
    receiver = SignedReceiver(old)
    async with receiver.running():
        settings = HttpTarget(url=f"{receiver.url}/hook", secret=new)
        for until_us, taken in ((2**62, 1), (1, 1)):
            sealed = Sealed(target=settings, old_secrets=(opening.OldSecret(secret=old, until_us=until_us),))
            made = open_target(sealed, LOOPBACK)
            try:
                if until_us > 1:
                    await made.send(MESSAGE)
                else:
                    with pytest.raises(NotNow, match="401"):
                        await made.send(MESSAGE)
            finally:
                await made.close()
            assert len(receiver.taken) == taken
        assert receiver.ids == [MESSAGE.id]


async def test_a_receiver_that_is_gone_for_good() -> None:
    receiver = SignedReceiver(secret := new_secret())
    receiver.always = Fault(410)
    async with receiver.running():
        made = open_target(Sealed(target=HttpTarget(url=f"{receiver.url}/hook", secret=secret)), LOOPBACK)
        with pytest.raises(NotEver, match="410"):
            await made.send(MESSAGE)
        await made.close()


async def test_a_bot_updates_its_message_and_goes_on_in_the_thread() -> None:
    case = await _slack_bot(Path())
    receiver = case.receiver
    assert isinstance(receiver, SlackReceiver)
    async with receiver.running():
        made = case.open()
        first = await made.send(MESSAGE)
        assert first.reference.startswith("C024BE91L/")
        again = await made.send(replace(MESSAGE, notices=(WELL,), reference=first.reference))
        assert again.reference == first.reference
        [(stamp, post)] = receiver.posts.items()
        assert "has completed" in post["text"]
        assert [reply["thread_ts"] for reply in receiver.replies] == [stamp]
        gone = await made.send(replace(MESSAGE, reference="C024BE91L/1.1"))
        assert gone.reference not in ("", first.reference), "a message that was deleted is posted anew"
        await made.close()
    assert receiver.complaints == []


@pytest.mark.parametrize("channel", ["C000000", "C024BE91L"])
async def test_a_bot_that_may_not_post(channel: str) -> None:
    receiver = SlackReceiver()
    async with receiver.running():
        token = receiver.TOKEN if channel != "C024BE91L" else "xoxb-wrongwrongwrong"
        made = open_target(Sealed(target=SlackTarget(token=token, channel=channel, api_url=f"{receiver.url}/api/")), LOOPBACK)
        with pytest.raises(NotEver, match=r"Slack says (channel_not_found|invalid_auth)"):
            await made.send(MESSAGE)
        await made.close()


async def test_an_alert_is_resolved_when_it_is_well_again() -> None:
    case = await _pagerduty(Path())
    receiver = case.receiver
    assert isinstance(receiver, PagerDutyReceiver)
    async with receiver.running():
        made = case.open()
        await made.send(MESSAGE)
        await made.send(MESSAGE)
        assert list(receiver.open) == ["tenuto:cluster.example:8080:experiment/3"], "one alert per experiment"
        await made.send(replace(MESSAGE, notices=(WELL,)))
        assert receiver.open == {}
        await made.close()
    assert receiver.complaints == []


def test_retry_after_in_its_two_forms() -> None:
    assert target.retry_after("120", 0) == 120
    assert target.retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1_445_412_470) == 10
    assert target.retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 2_000_000_000) == 0
    for nothing in (None, "", "soon", "-5", "١٢"):
        assert target.retry_after(nothing, 0) is None
