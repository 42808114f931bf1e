"""One table says who may ask for what: it names every route, and nothing else is answered."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import RoleChanged, RoleCreated, RoleGranted, RoleRemoved, RoleRevoked
from tenuto.services.gateway.rest import PREFIX, openapi_document
from tenuto.services.gateway.rights.access import (
    ALL,
    BASE,
    ROLES,
    Access,
    Principal,
    allowed,
    fold,
    is_cluster_admin,
    without_holder,
)
from tenuto.services.gateway.rights.permissions import (
    CHANGES_EXPERIMENT,
    CHANGES_WORKSPACE,
    OWN_TOKENS,
    PermissionRule,
    Where,
    refusal,
)
from tenuto.services.gateway.subjects import SUBJECTS, permissions_of

ROUTES = permissions_of(SUBJECTS).rules


def served() -> set[str]:
    routes = {
        f"{method} {prefix}{route.path}"
        for subject in SUBJECTS
        for prefix, routers in ((PREFIX, subject.routers), ("", subject.foreign_routers))
        for router in routers
        for route in router.routes
        for method in route.methods
    }
    return routes | {"GET /healthz", f"GET {PREFIX}/openapi.json", f"GET {PREFIX}/docs"}


def test_the_table_names_every_route_and_no_other() -> None:
    assert served() == set(ROUTES)


def test_every_route_is_found_by_its_own_path() -> None:
    for route in ROUTES:
        method, _, template = route.partition(" ")
        path = re.sub(r"\{[a-z_:]+\}", "7", template)
        assert permissions_of(SUBJECTS).match(method, path)[0] == route
    assert permissions_of(SUBJECTS).match("GET", "/api/v1/nothing") == ("", {}, ())
    assert permissions_of(SUBJECTS).match("DELETE", "/api/v1/experiments") == ("", {}, ("GET", "POST"))
    assert permissions_of(SUBJECTS).match("POST", "/api/v1/checkpoints/gc")[0] == "POST /api/v1/checkpoints/gc"


def test_only_health_the_document_and_the_sign_in_are_open() -> None:
    open_to_all = {"GET /healthz", f"GET {PREFIX}/openapi.json", f"GET {PREFIX}/docs"}
    open_to_all |= {f"GET {PREFIX}/login", f"POST {PREFIX}/login"}
    open_to_all |= {f"POST {PREFIX}/login/link", f"GET {PREFIX}/sso", f"GET {PREFIX}/sso/callback", f"POST {PREFIX}/sso/token"}
    open_to_all |= {f"POST {PREFIX}/agents/join", f"POST {PREFIX}/agents/standing"}  # by a join token, and by a password
    assert {route for route in ROUTES if ROUTES[route].where is Where.OPEN} == open_to_all


def test_what_changes_something_is_never_for_everybody() -> None:
    """But what is the asker's own: each such permission is one that a role or a limited token may lack."""
    own = {"experiment.create", "project.change", "secret.change", "webhook.change", "automation.change", "workspace.create"}
    own.add("template.change")  # of a workspace; in the whole cluster nobody has it without a grant
    for route, rule in ROUTES.items():
        if not route.startswith("GET ") and not route.endswith(
            ("/login", "/login/link", "/login/links", "/logout", "/sso/token", "/agents/join", "/agents/standing")
        ):
            reads = route.startswith("POST /mlflow/") and route.endswith("/search")  # a filter is sent as a body there
            assert reads or rule.others or rule.permission.endswith(".admin") or rule.permission in own, route


def test_the_table_and_the_roles_name_permissions_that_there_are() -> None:
    used = {name for rule in ROUTES.values() for name in (rule.permission, rule.others) if name}
    assert used == ALL == set().union(*ROLES.values())
    assert is_cluster_admin(Access(), Principal("ada", admin=True))
    assert not is_cluster_admin(Access(), Principal("ada"))


OLGA, EVE = Principal("olga"), Principal("eve", groups=("vision",))
HOLDER: Any = {"kind": "user", "name": "olga"}


def granted(*events: EventData) -> Access:
    access = Access()
    for data in events:
        access = fold(access, data)
    return access


def test_nothing_granted_makes_everybody_a_member_and_nobody_more() -> None:
    for name in ALL:
        assert allowed(Access(), OLGA, name, "vision") == (name in BASE | ROLES["member"])
        assert allowed(Access(), OLGA, name) == (name in BASE)


def test_a_role_counts_where_it_was_granted_and_until_it_is_revoked() -> None:
    editor = RoleGranted(kind="group", name="vision", role="editor", workspace="vision")
    access = granted(editor, RoleGranted(**HOLDER, role="cluster_admin"))
    assert allowed(access, EVE, "experiment.change_others", "vision")
    assert not allowed(access, EVE, "experiment.change_others", "speech")
    assert not allowed(access, EVE, "experiment.change_others")
    assert not allowed(access, EVE, "workspace.admin", "vision")
    assert not allowed(access, Principal("vision"), "experiment.change_others", "vision"), "a user is no group of that name"
    assert is_cluster_admin(access, OLGA)
    access = fold(access, RoleRevoked(kind="group", name="vision", role="editor", workspace="vision"))
    assert not allowed(access, EVE, "experiment.change_others", "vision")
    assert without_holder(access, "user/olga") == Access()


def test_a_role_of_ones_own_is_what_it_says_and_ends_with_it() -> None:
    role = RoleCreated(name="pools", permissions=("pool.admin",))
    access = granted(role, RoleGranted(**HOLDER, role="pools"))
    assert allowed(access, OLGA, "pool.admin")
    assert not allowed(access, OLGA, "user.admin")
    changed = fold(access, RoleChanged(name="pools", permissions=("user.admin",)))
    assert (allowed(changed, OLGA, "pool.admin"), allowed(changed, OLGA, "user.admin")) == (False, True)
    removed = fold(access, RoleRemoved(name="pools"))
    assert removed == Access()
    assert not allowed(fold(removed, role), OLGA, "pool.admin"), "who had the old one has not the new one of that name"


def test_a_limited_token_does_no_more_than_its_limit_and_no_more_than_its_user() -> None:
    limited = replace(OLGA, limited_to=frozenset({"experiment.view", "pool.admin"}))
    assert allowed(Access(), limited, "experiment.view", "vision")
    assert not allowed(Access(), limited, "experiment.create", "vision")
    assert not allowed(Access(), limited, "pool.admin")
    admin = replace(limited, admin=True)
    assert allowed(Access(), admin, "pool.admin")
    assert not allowed(Access(), admin, "user.admin")
    assert "limited to other permissions than experiment.change" in refusal(Access(), admin, CHANGES_EXPERIMENT, owner="olga")


@pytest.mark.parametrize("rule", sorted(set(ROUTES.values()), key=str), ids=str)
def test_an_admin_may_do_everything(rule: PermissionRule) -> None:
    assert refusal(Access(), Principal("root", admin=True), rule, workspace="vision", owner="ada") == ""


def test_refusals_name_who_may() -> None:
    said = refusal(Access(), EVE, CHANGES_EXPERIMENT, workspace="default", owner="ada", what="Experiment 1")
    assert said == "Experiment 1 is ada's; only ada or an admin may change it."
    assert refusal(Access(), EVE, CHANGES_EXPERIMENT, workspace="default", owner="eve") == ""
    assert "Only ada and admins" in refusal(Access(), EVE, OWN_TOKENS, owner="ada")
    assert "Only an admin" in refusal(Access(), EVE, PermissionRule("pool.admin"))
    assert "only a role with the permission workspace.admin" in refusal(Access(), EVE, CHANGES_WORKSPACE, workspace="vision")


def test_numbers_have_bounds_that_the_database_knows() -> None:
    for path, operations in openapi_document()["paths"].items():
        for method, operation in operations.items():
            for item in operation.get("parameters", ()):
                for schema in [item["schema"], *item["schema"].get("anyOf", ())]:
                    if schema.get("type") == "integer":
                        assert "maximum" in schema, f"{method} {path}: {item['name']}"
                        assert "minimum" in schema, f"{method} {path}: {item['name']}"
                        assert abs(schema["maximum"]) < 2**63
