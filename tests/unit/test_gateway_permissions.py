"""One table says who may ask for what: it names every route, and nothing else is answered."""

from __future__ import annotations

import re

import pytest

from tenuto.services.gateway.policies.permissions import ROUTES, Right, match, refusal
from tenuto.services.gateway.rest.door import MODULES, PREFIX, openapi_document


def served() -> set[str]:
    routes = {
        f"{method} {PREFIX}{route.path}" for module in MODULES for route in module.router.routes for method in route.methods
    }
    return routes | {"GET /healthz", f"GET {PREFIX}/openapi.json", f"GET {PREFIX}/docs"}


def test_the_table_names_every_route_and_no_other() -> None:
    assert served() == set(ROUTES)


def test_every_route_is_found_by_its_own_path() -> None:
    for route in ROUTES:
        method, _, template = route.partition(" ")
        path = re.sub(r"\{[a-z_]+\}", "7", template)
        assert match(method, path)[0] == route
    assert match("GET", "/api/v1/nothing") == ("", {}, ())
    assert match("DELETE", "/api/v1/experiments") == ("", {}, ("GET", "POST"))
    assert match("POST", "/api/v1/checkpoints/gc")[0] == "POST /api/v1/checkpoints/gc"


def test_only_health_the_document_and_the_sign_in_are_open() -> None:
    open_to_all = {"GET /healthz", f"GET {PREFIX}/openapi.json", f"GET {PREFIX}/docs", f"POST {PREFIX}/login"}
    open_to_all |= {f"GET {PREFIX}/sso", f"GET {PREFIX}/sso/callback", f"POST {PREFIX}/sso/token"}
    assert {route for route in ROUTES if ROUTES[route] is Right.OPEN} == open_to_all


def test_what_changes_something_is_never_for_everybody() -> None:
    own = {"experiments", "experiments/{experiment_id}/reproduce", "experiments/{experiment_id}/fork"}
    own |= {"experiments/{experiment_id}/continue", "secrets/{name}", "webhooks"}
    own |= {"login", "logout", "sso/token"}  # of the one who asks
    for route, right in ROUTES.items():
        method, _, template = route.partition(" ")
        if method != "GET" and template.removeprefix(f"{PREFIX}/") not in own:
            assert right in (Right.OWNER, Right.SELF, Right.MAKER, Right.ADMIN), route


@pytest.mark.parametrize("right", list(Right))
def test_an_admin_may_do_everything(right: Right) -> None:
    assert refusal(right, "root", admin=True, owner="ada") == ""


def test_refusals_name_who_may() -> None:
    assert refusal(Right.OWNER, "eve", admin=False, owner="ada", what="Experiment 1") == (
        "Experiment 1 is ada's; only ada or an admin may change it."
    )
    assert refusal(Right.OWNER, "ada", admin=False, owner="ada") == ""
    assert "Only ada and admins" in refusal(Right.SELF, "eve", admin=False, owner="ada")
    assert "Only an admin" in refusal(Right.ADMIN, "eve", admin=False)


def test_numbers_have_bounds_that_the_database_knows() -> None:
    for path, operations in openapi_document()["paths"].items():
        for method, operation in operations.items():
            for item in operation.get("parameters", ()):
                for schema in [item["schema"], *item["schema"].get("anyOf", ())]:
                    if schema.get("type") == "integer":
                        assert "maximum" in schema, f"{method} {path}: {item['name']}"
                        assert "minimum" in schema, f"{method} {path}: {item['name']}"
                        assert abs(schema["maximum"]) < 2**63
