"""Limits on guesses at passwords, which are weak, and how a user's sessions end."""

from __future__ import annotations

import pytest
from fastapi import Response
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.core import Refused
from tenuto.kernel.settings import Settings
from tenuto.schemas.events.people import UserPasswordSet
from tenuto.schemas.events.request import NewUser, TokenCreated, TokenRevoked, UserCreated, UserRemoved
from tenuto.services.gateway.http.cookies import check_origin, credentials, give, take_away
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.guess_limits import ADDRESS_FREE, FORGET_SECONDS, USER_FREE, WAIT_SECONDS_MAX, Throttle
from tenuto.services.gateway.people.adapters.passwords import LENGTH_MAX, weakness
from tenuto.services.gateway.people.commands import CreateToken, CreateUser, SetPassword, SignIn
from tenuto.services.gateway.rights.state import SESSIONS_PER_USER_MAX
from tests.unit.test_gateway_core import Driver, types


def test_failures_of_a_user_make_each_further_try_wait_twice_as_long() -> None:
    throttle, now = Throttle(), 0.0
    for number in range(USER_FREE):
        assert throttle.begin("ada", f"10.0.0.{number}", now) == 0.0
    waits = []
    for number in range(12):
        waits.append(throttle.begin("ada", f"10.0.1.{number}", now))
        now += waits[-1]
        assert throttle.begin("ada", f"10.0.1.{number}", now) == 0.0
    assert waits[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert waits[-1] == WAIT_SECONDS_MAX
    assert throttle.begin("bob", "10.0.2.1", now) == 0.0
    assert throttle.begin("ada", "10.0.3.1", now + FORGET_SECONDS) == 0.0


def test_failures_of_an_address_count_over_all_names() -> None:
    throttle = Throttle()
    for number in range(ADDRESS_FREE):
        assert throttle.begin(f"user{number}", "10.0.0.1", 0.0) == 0.0
    assert throttle.begin("ada", "10.0.0.1", 0.0) == 1.0
    assert throttle.begin("ada", "10.0.0.2", 0.0) == 0.0


def test_a_right_password_is_forgiven_and_strangers_do_not_keep_its_user_out() -> None:
    throttle = Throttle()
    for _ in range(100):
        assert throttle.begin("ada", "10.0.0.1", 0.0) == 0.0
        throttle.forgive("ada", "10.0.0.1", 0.0)
    for number in range(USER_FREE):
        assert throttle.begin("ada", f"10.6.6.{number}", 1.0) == 0.0
    assert throttle.begin("ada", "10.6.6.9", 1.0) > 0.0, "a stranger waits"
    assert throttle.begin("ada", "10.0.0.1", 1.0) == 0.0, "the user, where she signed in before, does not"
    for _ in range(USER_FREE - 1):
        assert throttle.begin("ada", "10.0.0.1", 1.0) == 0.0
    assert throttle.begin("ada", "10.0.0.1", 1.0) > 0.0, "but guesses from there have their limit, too"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans(), st.floats(0, 100)), max_size=200))
def test_what_is_kept_is_bounded_and_no_wait_is_endless(steps: list[tuple[str, str, bool, float]]) -> None:
    throttle, now = Throttle(kept_max=4), 0.0
    for user, address, right, seconds in steps:
        now += seconds
        wait = throttle.begin(user, address, now)
        assert 0.0 <= wait <= WAIT_SECONDS_MAX
        if not wait and right:
            throttle.forgive(user, address, now)
        assert len(throttle) <= 8


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("short", "at least 10 characters"),
        ("x" * (LENGTH_MAX + 1), "at most 256 characters"),
        ("password12345", "too easy to guess"),
        ("gertrud-gertrud", "too easy to guess"),
        ("qwertyuiop12", "too easy to guess"),
        ("with a \x1b in it, alas", "no control characters"),
        ("two-otters-juggle-lamps", ""),
    ],
)
def test_weak_passwords_are_refused_in_one_sentence(password: str, why: str) -> None:
    found = weakness(password, "gertrud")
    assert why in found
    assert bool(found) == bool(why)
    assert password not in found


def hashed(number: int) -> str:
    return f"{number:012x}".ljust(64, "0")


def driver_with(*names: str) -> Driver:
    driver = Driver()
    for name in names:
        driver.record(UserCreated(name=name, token_hash=hashed(len(driver.log))))
    return driver


def sign_in(driver: Driver, number: int, password_id: str = "1", new: str = "", expires_us: int | None = None) -> list[str]:
    token_hash = hashed(1000 + number)
    command = {"password_id": password_id, "token_hash": token_hash, "expires_us": expires_us, "new_password_id": new}
    return types(driver.ask(SignIn, **command))


def test_a_password_of_an_admin_serves_only_to_choose_another_and_a_change_ends_all_sessions() -> None:
    driver = driver_with("ada", "eve")
    with pytest.raises(Refused, match="Only an admin"):
        driver.ask(SetPassword, name="eve", password_id="9")
    driver.user = "admin"
    [event] = driver.ask(SetPassword, name="ada", password_id="1")
    assert isinstance(event, UserPasswordSet)
    assert event.must_change
    for name in ("admin", "nobody"):
        with pytest.raises(Refused):
            driver.ask(SetPassword, name=name, password_id="1")
    with pytest.raises(Refused, match="has no password"):
        driver.ask(SetPassword, name="eve", password_id="")
    driver.user = "ada"
    with pytest.raises(Refused, match="choose your own"):
        sign_in(driver, 0)
    assert sign_in(driver, 0, new="2") == ["UserPasswordSet", "TokenCreated"]
    assert sign_in(driver, 1, "2") == ["TokenCreated"]
    driver.ask(CreateToken, owner="ada", token_hash=hashed(7))
    assert [token.session for token in driver.state.tokens_of("ada")].count(True) == 2
    with pytest.raises(Refused, match="sign in again"):
        sign_in(driver, 2, "1")  # compared before the change
    assert sign_in(driver, 3, "2", new="3") == ["UserPasswordSet", "TokenCreated"]
    assert [token.token_hash for token in driver.state.tokens_of("ada") if token.session] == [hashed(1003)]
    assert len(driver.state.tokens_of("ada")) == 3, "tokens stay"
    driver.user = "admin"
    driver.ask(SetPassword, name="ada", password_id="")
    assert not any(token.session for token in driver.state.tokens_of("ada"))
    driver.user = "ada"
    with pytest.raises(Refused, match="sign in again"):
        sign_in(driver, 4, "")


def test_the_oldest_session_ends_when_there_are_too_many_and_takes_no_place_of_a_token() -> None:
    driver = driver_with("ada")
    driver.record(UserPasswordSet(name="ada", password_id="1"))
    for number in range(SESSIONS_PER_USER_MAX):
        assert sign_in(driver, number) == ["TokenCreated"]
    drafts = driver.ask(SignIn, password_id="1", token_hash=hashed(1000 + SESSIONS_PER_USER_MAX), expires_us=None)
    assert isinstance(drafts[0], TokenCreated)
    assert isinstance(drafts[1], TokenRevoked)
    assert len([token for token in driver.state.tokens_of("ada") if token.session]) == SESSIONS_PER_USER_MAX
    for number in range(19):
        driver.ask(CreateToken, owner="ada", token_hash=hashed(number + 5000))
    with pytest.raises(Refused, match="20 tokens"):
        driver.ask(CreateToken, owner="ada", token_hash=hashed(6000))


def test_a_service_account_has_tokens_that_its_owner_keeps_and_no_password() -> None:
    driver = driver_with("ada", "eve")
    driver.user = "admin"
    for new, why in (
        (NewUser(name="ci", owner="ada"), "Only a service account has an owner"),
        (NewUser(name="ci", service=True, owner="nobody"), "There is no user nobody"),
        (NewUser(name="ci", service=True, admin=True, owner="ada"), "ada is no admin"),
    ):
        with pytest.raises(Refused, match=why):
            driver.ask(CreateUser, new=new, token_hash=hashed(90))
    driver.ask(CreateUser, new=NewUser(name="ci", service=True, owner="ada"), token_hash=hashed(91))
    with pytest.raises(Refused, match="ci is a service account and owns none"):
        driver.ask(CreateUser, new=NewUser(name="cd", service=True, owner="ci"), token_hash=hashed(92))
    with pytest.raises(Refused, match="tokens and no password"):
        driver.ask(SetPassword, name="ci", password_id="1")
    driver.user = "eve"
    with pytest.raises(Refused, match="Only ci and admins"):
        driver.ask(CreateToken, owner="ci", token_hash=hashed(93))
    driver.user = "ada"
    driver.ask(CreateToken, owner="ci", token_hash=hashed(94))
    assert len(driver.state.tokens_of("ci")) == 2
    driver.record(UserRemoved(name="ada"))
    driver.record(UserCreated(name="ada", token_hash=hashed(95)))
    with pytest.raises(Refused, match="Only ci and admins"):  # somebody else has the name now
        driver.ask(CreateToken, owner="ci", token_hash=hashed(96))
    assert not driver.state.acts_for("", "ci")


def scope(method: str = "POST", **headers: str) -> dict[str, object]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "headers": pairs, "scheme": "http"}


@pytest.mark.parametrize(
    ("public_url", "headers", "allowed"),
    [
        ("", {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}, True),
        ("", {"host": "localhost:8080", "origin": "http://localhost:8080"}, True),
        ("", {"host": "[::1]:8080", "origin": "http://[::1]:8080"}, True),
        ("", {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:9090"}, False),
        ("", {"host": "127.0.0.1:8080", "origin": "http://evil.example"}, False),
        ("", {"host": "127.0.0.1:8080", "origin": "null"}, False),
        ("", {"host": "127.0.0.1:8080"}, False),
        ("", {"host": "127.0.0.1:8080", "sec_fetch_site": "same-origin"}, True),
        ("", {"host": "127.0.0.1:8080", "sec_fetch_site": "same-site"}, False),
        # A name that an attacker makes lead here: its page is of the same origin, in the browser's eyes.
        ("", {"host": "evil.example:8080", "origin": "http://evil.example:8080"}, False),
        ("", {"host": "evil.example:8080", "sec_fetch_site": "same-origin"}, False),
        ("", {"host": "", "origin": "://"}, False),
        ("", {"host": "[", "origin": "http://["}, False),
        ("https://t.example", {"host": "10.1.1.1", "origin": "https://t.example"}, True),
        ("https://t.example", {"host": "t.example", "origin": "http://t.example"}, False),
        ("https://t.example", {"host": "t.example", "origin": "https://t.example.evil.example"}, False),
    ],
)
def test_a_session_in_a_cookie_changes_something_only_from_the_clusters_own_page(
    public_url: str, headers: dict[str, str], allowed: bool
) -> None:
    settings = Settings(public_url=public_url)
    cookie = {"cookie": "other=1; tenuto_session=abc"}
    assert credentials(scope("GET", **headers, **cookie), settings) == ("Bearer abc", True)
    if allowed:
        check_origin(scope(**headers), settings)
        assert credentials(scope(**headers, **cookie), settings) == ("Bearer abc", True)
    else:
        with pytest.raises(DoorError, match="no page of this cluster"):
            credentials(scope(**headers, **cookie), settings)
    given = scope(authorization="Bearer t", **headers, **cookie)
    assert credentials(given, settings) == ("Bearer t", False), "the header goes first"


@pytest.mark.parametrize(
    ("public_url", "begin", "secure"), [("", "tenuto_session=t;", False), ("https://t.example", "__Host-tenuto_session=t;", True)]
)
def test_a_cookie_is_read_by_no_script_and_over_tls_sent_encrypted_only(public_url: str, begin: str, secure: bool) -> None:
    settings = Settings(public_url=public_url)
    response = Response()
    give(response, scope(), settings, "t", 43_200.0)
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(begin)
    assert {"HttpOnly", "Path=/", "SameSite=strict", "Max-Age=43200"} <= set(cookie.split("; "))
    assert ("Secure" in cookie) is secure
    take_away(response, scope(), settings)
    assert "Max-Age=0" in response.headers.getlist("set-cookie")[1]
