"""Who somebody is by a provider of identities, and what tokens may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from tenuto.kernel.core import Refused
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.schemas.events.access import RoleCreated, RoleGranted, WorkspaceCreated
from tenuto.schemas.events.request import NewUser, UserRemoved
from tenuto.services.gateway.people.adapters.identity_provider import Provider
from tenuto.services.gateway.people.adapters.sso_visits import CODE_SECONDS, FLOW_SECONDS, Sso, challenge_of, from_settings
from tenuto.services.gateway.people.commands import CreateToken, CreateUser, LinkUser, SetPassword, SignInAtProvider
from tenuto.services.gateway.people.policies.identity import NoIdentity, ProviderIdentity, identity
from tenuto.services.gateway.rights.access import ALL, BASE, Access, Principal, Sight, Workspace, allowed, sight
from tenuto.services.gateway.rights.permissions import Where, refusal
from tenuto.services.gateway.subjects import SUBJECTS, permissions_of
from tests.unit.test_gateway_core import Driver, types
from tests.unit.test_signing_in import driver_with, hashed

ROUTES = permissions_of(SUBJECTS).rules

ISSUER = "https://id.example.com"


@pytest.mark.parametrize(
    ("claims", "name", "groups"),
    [
        ({"sub": "1", "preferred_username": "Ada", "groups": ["b", "a", "a", "", 7, "x" * 257, "nul\0"]}, "ada", ("a", "b")),
        ({"sub": "1", "preferred_username": "ada", "groups": "one"}, "ada", ("one",)),
        ({"sub": "1", "preferred_username": "ada", "groups": {"a": 1}}, "ada", ()),
        ({"sub": "1", "preferred_username": "ada@example.com"}, "", ()),
        ({"sub": "1", "preferred_username": ["ada"]}, "", ()),
        ({"sub": "1", "preferred_username": "a\n"}, "", ()),
        ({"sub": "1"}, "", ()),
        ({"sub": "s" * 600, "preferred_username": "ada"}, "", ()),
        ({"sub": "1", "preferred_username": "ada", "groups": [str(number) for number in range(501)]}, "", ()),
    ],
)
def test_a_providers_claims_give_a_name_and_groups_or_one_sentence(
    claims: dict[str, object], name: str, groups: tuple[str, ...]
) -> None:
    if name:
        assert identity(claims, ISSUER, "preferred_username", "groups") == (f"{ISSUER} 1", name, groups)
    else:
        with pytest.raises(NoIdentity):
            identity(claims, ISSUER, "preferred_username", "groups")


def comes(driver: Driver, name: str, subject: str, may_create: bool = True, *groups: str) -> list[str]:
    driver.user = name
    more = {"subject": f"{ISSUER} {subject}", "groups": groups, "may_create": may_create}
    return types(driver.ask(SignInAtProvider, token_hash=hashed(driver.count + 7_000), expires_us=None, **more))


def test_a_user_is_the_providers_subject_and_not_its_name() -> None:
    driver = driver_with("eve")
    with pytest.raises(Refused, match="There is no user ada here"):
        comes(driver, "ada", "1", False)
    assert comes(driver, "ada", "1", True, "lab") == ["UserCreated", "UserLinked", "UserGroupsSet", "TokenCreated"]
    assert comes(driver, "ada", "1", True, "lab") == ["TokenCreated"]
    assert comes(driver, "ada", "1", True) == ["UserGroupsSet", "TokenCreated"]
    for name, subject, why in (("ada", "2", "signs in otherwise"), ("eve", "3", "signs in otherwise"), ("admin", "4", "already")):
        with pytest.raises(Refused, match=why):
            comes(driver, name, subject)
    with pytest.raises(Refused, match="was changed"):
        comes(driver, "eve", "1")  # linked to ada by now
    driver.user = "eve"
    with pytest.raises(Refused, match="admin"):
        driver.ask(LinkUser, name="eve")
    driver.user = "admin"
    driver.ask(LinkUser, name="eve")
    assert comes(driver, "eve", "3") == ["UserLinked", "TokenCreated"]
    with pytest.raises(Refused, match="signs in otherwise"):
        comes(driver, "eve", "5")
    driver.record(UserRemoved(name="ada"))
    with pytest.raises(Refused, match="ada was removed"):
        comes(driver, "ada", "1")
    assert comes(driver, "ada", "6")[0] == "UserCreated", "somebody else there"


def test_a_way_back_and_a_code_count_once_and_for_a_while() -> None:
    now = [0.0]
    sso = Sso(Provider(ISSUER, "tenuto", "", "openid"), now=lambda: now[0])
    flow = sso.begin("", 0)
    sealed = sso.sealed(flow)
    assert sso.opened(sealed[:-4] + "AAAA", flow.state) is None
    assert sso.opened("", flow.state) is None
    assert sso.opened("\u00e9", flow.state) is None
    assert sso.opened(sealed, "another") is None
    assert sso.opened(sealed, flow.state) == flow
    assert sso.opened(sealed, flow.state) is None
    late = sso.begin("", 0)
    now[0] = FLOW_SECONDS
    assert sso.opened(sso.sealed(late), late.state) is None
    who = ProviderIdentity("s", "ada", ())
    code = sso.hand_out(who, challenge_of("v" * 43))
    assert sso.take("wrong", "v" * 43) is None
    assert sso.take(code, "v" * 43) == who
    assert sso.take(code, "v" * 43) is None
    code = sso.hand_out(who, challenge_of("v" * 43))
    now[0] += CODE_SECONDS
    assert sso.take(code, "v" * 43) is None


def test_settings_of_the_provider_are_checked_at_the_start(tmp_path: Path) -> None:
    assert from_settings(Settings()) is None
    with pytest.raises(SettingsError, match="without TENUTO_OIDC_CLIENT_ID"):
        from_settings(Settings(oidc_issuer=ISSUER))
    missing = Settings(oidc_issuer=ISSUER, oidc_client_id="t", oidc_client_secret_file=str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        from_settings(missing)


def test_a_limited_token_makes_none_that_may_more() -> None:
    driver = driver_with("ada")
    driver.user, numbers = "ada", iter(range(8_000, 9_000))

    def made(wanted: tuple[str, ...] | None, shown: tuple[str, ...] | None, replaces: str = "") -> Any:
        command = {"owner": "ada", "token_hash": hashed(next(numbers)), "permissions": wanted, "limited_to": shown}
        return driver.ask(CreateToken, **command, replaces_id=replaces)[0]

    view, both = ("experiment.view",), ("experiment.view", "token.change")
    assert made(None, None).permissions is None
    assert made(both[::-1], None).permissions == both
    assert made(None, both).permissions == both, "the limit is inherited"
    assert made(view, both).permissions == view
    for wanted, why in ((("experiment.create",), "not allowed experiment.create"), (("nothing",), "is no permission")):
        with pytest.raises(Refused, match=why):
            made(wanted, both)
    tokens = {token.permissions: token.id for token in driver.state.tokens_of("ada")}
    assert made(None, None, tokens[view]).permissions == view, "rotated, it keeps its limit"
    with pytest.raises(Refused, match="is limited, and"):
        made(None, both, tokens[None])
    with pytest.raises(Refused, match=r"not allowed token\.change"):
        made(None, view, tokens[both])


def test_a_token_of_a_workspace_makes_none_for_another() -> None:
    driver = driver_with("ada")
    driver.record(WorkspaceCreated(workspace="vision"))
    driver.record(WorkspaceCreated(workspace="vault", private=True))
    driver.user, numbers = "ada", iter(range(8_000, 9_000))

    def made(wanted: str, shown: str, replaces: str = "") -> Any:
        command = {"owner": "ada", "token_hash": hashed(next(numbers)), "workspace": wanted, "shown_workspace": shown}
        return driver.ask(CreateToken, **command, replaces_id=replaces)[0].workspace

    assert (made("", ""), made("vision", ""), made("default", "")) == (None, "vision", "default")
    assert made("", "vision") == "vision", "the limit is inherited"
    for wanted in ("vault", "none"):
        with pytest.raises(Refused, match=f"There is no workspace {wanted}; "):
            made(wanted, "")
    with pytest.raises(Refused, match="limited to workspace vision, and makes none for another"):
        made("default", "vision")
    tokens = {token.workspace: token.id for token in driver.state.tokens_of("ada")}
    assert made("", "", tokens["vision"]) == "vision", "rotated, it keeps its limit"
    with pytest.raises(Refused, match="is limited, and"):
        made("", "vision", tokens[""])


def test_an_admins_token_of_a_workspace_is_refused_everything_beyond_it() -> None:
    access = Access(workspaces=Map({"vision": Workspace(), "text": Workspace(), "vault": Workspace(private=True)}))
    subject = Principal("boss", admin=True, workspace="vision")
    assert sight(access, subject) == Sight(frozenset({"default", "text", "vault"}))
    assert sight(access, replace(subject, workspace="default")).hidden == {"vision", "text", "vault"}
    stranger = Principal("eve", workspace="vault")
    assert not sight(access, stranger).sees("vault"), "one sees no more by a limit"
    of_experiments = [name for name in ALL - BASE if name.startswith(("experiment", "project", "workspace"))]
    assert not any(allowed(access, stranger, name, place) for name in of_experiments for place in ("vault", "text", ""))
    for route, rule in ROUTES.items():
        for place in ("vision", "text", "default"):
            if rule.where in (Where.EXPERIMENT, Where.WORKSPACE, Where.ANYWHERE, Where.SOURCE):
                why = refusal(access, subject, rule, workspace=place, owner="ada", what="It")
                assert (why == "") is (place == "vision"), (route, place, why)
        if rule.where in (Where.CLUSTER, Where.WEBHOOK, Where.AUTOMATION, Where.USER):
            why = refusal(access, subject, rule, owner="boss")
            assert (why == "") is (rule.permission in ("", "cluster.view")), (route, why)
            assert not why or why.startswith("This token is limited to workspace vision; "), route


def test_who_manages_users_becomes_nobody_who_may_more() -> None:
    driver = driver_with("mia", "ada", "lea", "root")
    driver.record(RoleCreated(name="people", permissions=("user.admin",)))
    driver.record(RoleGranted(kind="user", name="mia", role="people"))
    driver.record(RoleGranted(kind="user", name="lea", role="editor", workspace="vision"))
    driver.record(RoleGranted(kind="user", name="root", role="cluster_admin"))
    driver.user = "mia"
    driver.ask(SetPassword, name="ada", password_id="1")
    driver.ask(CreateToken, owner="ada", token_hash=hashed(41))
    for name in ("lea", "root"):
        for kind, fields in ((SetPassword, {"name": name, "password_id": "1"}), (LinkUser, {"name": name})):
            with pytest.raises(Refused, match=f"{name} may do more than you"):
                driver.ask(kind, **fields)
        with pytest.raises(Refused, match=f"{name} may do more than you"):
            driver.ask(CreateToken, owner=name, token_hash=hashed(42))
    with pytest.raises(Refused, match="Only who may do everything"):
        driver.ask(CreateUser, new=NewUser(name="boss", admin=True), token_hash=hashed(43))
