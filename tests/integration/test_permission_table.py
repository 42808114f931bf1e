"""Every route, asked for by every role, about what is one's own, what is somebody else's, and what is in a private workspace.

What the table should say follows here from the shape of the address, a second time; so a wrong row is found, and so is a door
that does not ask. A request that passes the judgement may still be refused for what it says (400, 404, 409): it only must not be
refused as if the asker lacked the permission, or as if what it names did not exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.search import TrialRequested
from tenuto.services.gateway.rights.permissions import ANY, PermissionRule, Where
from tenuto.services.gateway.subjects import SUBJECTS, permissions_of
from tests.support.gateway_world import SLOTS, WHY, World, gateway_world, saved

ROUTES = permissions_of(SUBJECTS).rules

DERIVED = ("/reproduce", "/fork", "/continue")
SEEN_ANYWHERE = (
    "/experiments", "/checkpoints", "/events", "/events/search", "/events/{position}/links", "/events/stream", "/diff",
    "/allocations", "/workspaces",
)  # fmt: skip
ADMINS: Mapping[str, str] = {
    "users": "user.admin", "roles": "role.admin", "grants": "role.admin", "pools": "pool.admin", "shares": "pool.admin",
    "agents": "pool.admin", "log": "upkeep.admin", "views": "upkeep.admin", "parked": "upkeep.admin",
    "checkpoints": "upkeep.admin",
}  # fmt: skip
SEEN_BY_USERS = ("users", "roles", "grants", "shares", "agents", "stores", "jobs", "cluster", "pools", "status", "parked")


def by_shape(route: str) -> tuple[str, Where, str] | None:
    """(permission, where, permission for what is somebody else's), as the address has it. None: of another kind."""
    method, _, template = route.partition(" ")
    path = template.removeprefix("/api/v1")
    first, reads = path.split("/")[1], method == "GET"
    if "_id}" in path and first in ("experiments", "trials", "checkpoints", "jobs"):
        if reads:
            return "experiment.view", Where.EXPERIMENT, ""
        if path.endswith(DERIVED):
            return "experiment.create", Where.SOURCE, ""
        return "experiment.change", Where.EXPERIMENT, "experiment.change_others"
    if path.startswith("/workspaces/{"):
        if reads:
            return "experiment.view", Where.WORKSPACE, ""
        changed = {"projects": "project.change", "templates": "template.change"}
        return changed.get(path.split("/")[3] if path.count("/") > 2 else "", "workspace.admin"), Where.WORKSPACE, ""
    if first == "templates":
        return ("experiment.view", Where.ANYWHERE, "") if reads else ("template.change", Where.CLUSTER, "")
    if path in ("/agents/join", "/agents/standing"):  # the body has a join token, or an agent's password
        return None
    if first == "join-tokens":
        return "pool.admin", Where.CLUSTER, ""
    if path == "/preview":
        return "experiment.create", Where.ANYWHERE, ""
    if first == "webhooks":
        if reads or "{" not in path:
            return ("webhook.view" if reads else "webhook.change"), Where.CLUSTER, ""
        return "webhook.change", Where.WEBHOOK, "webhook.change_others"
    if path == "/secrets/rotate-key":
        return "upkeep.admin", Where.CLUSTER, ""
    if first == "secrets":
        return "secret.change", Where.CLUSTER, ""
    if path.startswith("/users/{name}/tokens"):
        return "token.change", Where.USER, "user.admin"
    if path in SEEN_ANYWHERE and reads:
        return "experiment.view", Where.ANYWHERE, ""
    if path in ("/experiments", "/workspaces"):
        return ("experiment.create", Where.ANYWHERE, "") if path == "/experiments" else ("workspace.create", Where.CLUSTER, "")
    if reads:
        return ("cluster.view", Where.CLUSTER, "") if first in SEEN_BY_USERS else None
    return (ADMINS[first], Where.CLUSTER, "") if first in ADMINS else None


def wrong_rows(table: Mapping[str, PermissionRule]) -> list[str]:
    return [route for route, rule in table.items() if (said := by_shape(route)) is not None and tuple(rule) != said]


def test_each_row_is_what_its_address_says() -> None:
    assert wrong_rows(ROUTES) == []
    assert len([route for route in ROUTES if by_shape(route) is None]) < len(ROUTES) / 2


def test_a_wrong_row_is_found() -> None:
    for route, rule in ROUTES.items():
        if by_shape(route) is not None:
            for wrong in (ANY, PermissionRule("cluster.view", Where.ANYWHERE), rule._replace(others="token.change")):
                assert wrong_rows({**ROUTES, route: wrong}) == [route]


OWN, OTHERS, HIDDEN = "own", "others", "hidden"
EXPERIMENTS = {OWN: 1, OTHERS: 2, HIDDEN: 3}
"""eve's in `default`, ada's in `default`, ada's in the private workspace `vault`. eve asks."""
NOBODY, MEMBER, VIEWER, EDITOR, OWNER, ADMIN = "nobody", "member", "viewer", "editor", "workspace_admin", "cluster_admin"
THERE = (VIEWER, EDITOR, OWNER)
"""Granted in `vault`; the last one is granted in the whole cluster."""
ASKERS = (NOBODY, MEMBER, *THERE, ADMIN)
ANYBODYS = {
    "experiment.view", "experiment.create", "experiment.change", "project.change", "cluster.view", "workspace.create",
    "secret.change", "webhook.view", "webhook.change", "token.change",
}  # fmt: skip
IN_THE_VAULT = {
    VIEWER: {"experiment.view"},
    EDITOR: {"experiment.view", "experiment.create", "experiment.change", "project.change", "template.change"},
    OWNER: {
        *("experiment.view", "experiment.create", "experiment.change", "project.change"),
        *("template.change", "workspace.admin"),
    },
}
LAST = ("DELETE", "POST /api/v1/views/rebuild")
"""What they take away is asked for by others before."""


class Case(NamedTuple):
    route: str
    place: str

    @property
    def request(self) -> tuple[str, str]:
        method, _, template = self.route.partition(" ")
        number, user = EXPERIMENTS[self.place], "eve" if self.place == OWN else "ada"
        values = {
            "experiment_id": number, "trial_id": f"{number}-1", "checkpoint_id": f"{number}-1-1-5", "project": "none",
            "workspace": "vault" if self.place == HIDDEN else "default", "token_id": "0" * 12, "role": "none", "kind": "user",
            "number": 7, "position": 1, "pool": "none", "agent_id": "none", "owner": "user", "template": "none",
            "name": f"hook-{user}" if "/webhooks/" in template else user,
        }  # fmt: skip
        return method, template.format(**values)


def cases() -> list[Case]:
    """Of all routes whose shape is known; a stream has no end."""
    found = []
    for route in sorted(ROUTES, key=lambda route: (route.startswith(LAST), route)):
        shape = by_shape(route)
        if shape is None or route.endswith("/stream"):
            continue
        if shape[1] in (Where.EXPERIMENT, Where.SOURCE):
            found += [Case(route, place) for place in (OWN, OTHERS, HIDDEN)]
        elif shape[1] is Where.WORKSPACE:
            found += [Case(route, place) for place in (OTHERS, HIDDEN)]
        else:
            found += [Case(route, place) for place in ((OWN, OTHERS) if shape[2] else (OTHERS,))]
    return found


def expected(case: Case, asker: str) -> int | None:
    """The status that refuses; None: it gets through."""
    shape = by_shape(case.route)
    assert shape is not None
    permission, _, others = shape
    if asker in (NOBODY, ADMIN):
        return 401 if asker == NOBODY else None
    if case.place == HIDDEN:
        if asker not in THERE:
            return 404
        return None if permission in IN_THE_VAULT[asker] else 403
    if "/webhooks/{" in case.route and case.place == OTHERS and asker not in THERE:
        return 404  # its notices may be about what the asker does not see
    if others and case.place == OTHERS:
        return 403
    return None if permission in ANYBODYS else 403


async def made(answer: httpx.Response, status: int = 201) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


class Stage(NamedTuple):
    world: World
    doors: Mapping[str, httpx.AsyncClient]
    """By user; of nobody without a token."""

    async def become(self, asker: str) -> httpx.AsyncClient:
        """eve's door, with exactly that role, or nobody's."""
        for role in THERE:
            await self.world.http.delete(f"/api/v1/workspaces/vault/grants/user/eve/{role}")
        if asker in (*THERE, ADMIN):
            path = "/api/v1/grants" if asker == ADMIN else "/api/v1/workspaces/vault/grants"
            await made(await self.world.http.post(path, json={"kind": "user", "name": "eve", "role": asker}), 200)
        return self.doors[NOBODY if asker == NOBODY else "eve"]

    async def mismatches(self, asked: list[Case], askers: tuple[str, ...] = ASKERS) -> list[tuple[str, str, str, int]]:
        found = []
        for asker in askers:
            http = await self.become(asker)
            for case in asked:
                method, path = case.request
                answer = await http.request(method, path, json=None if method in ("GET", "DELETE") else {})
                refused = refused_by(answer, path)
                viewer_forks = asker == VIEWER and case.route.endswith(DERIVED) and case.place == HIDDEN
                if (
                    viewer_forks
                ):  # judged by the handler, for the workspace of the new one; here it is refused for its body before
                    refused = refused if refused == 404 else 403
                if case.place == OWN and refused == 404:  # an asker before has removed it
                    refused = None
                if refused != expected(case, asker):
                    found.append((asker, method, path, answer.status_code))
        return found


def refused_by(answer: httpx.Response, path: str) -> int | None:
    """The status, if it is a judgement of who asks."""
    if answer.status_code in (401, 403):
        return answer.status_code
    if answer.status_code == 404:
        said, parts = answer.json()["error"]["message"], path.split("/")[3:]
        kinds = ("experiment", "trial", "checkpoint", "workspace", "webhook")
        return 404 if any(said.startswith(f"There is no {kind} {part};") for kind in kinds for part in parts) else None
    return None


HOOK = {"target": {"kind": "http", "url": "https://example.com/x"}, "triggers": [{"on": "agent_lost"}]}


@pytest.fixture
async def stage(database: Any, tmp_path: Path) -> AsyncIterator[Stage]:
    kept: dict[str, Any] = {
        "requests_per_second_max": 0,
        "token_requests_per_second_max": 0,
        "secret_key_file": str(tmp_path / "secret.key"),
    }
    async with gateway_world(database, tmp_path, **kept) as world, contextlib.AsyncExitStack() as stack:
        doors = {}
        for name in (NOBODY, "ada", "eve"):
            headers = {}
            if name != NOBODY:
                token = (await made(await world.http.post("/api/v1/users", json={"name": name})))["token"]
                headers = {"Authorization": f"Bearer {token}"}
            http = httpx.AsyncClient(base_url=world.http.base_url, headers=headers, timeout=60)
            doors[name] = await stack.enter_async_context(http)
        await made(await doors["ada"].post("/api/v1/workspaces", json={"name": "vault", "private": True}))
        for name, config in (("eve", ""), ("ada", ""), ("ada", "resources: {workspace: vault}")):
            as_user = World(world.service, world.log, doors[name], world.shared)
            await made(await as_user.submit(world.config + config))
        for name in ("eve", "ada"):
            await made(await doors[name].post("/api/v1/webhooks", json={**HOOK, "name": f"hook-{name}"}))
        for number in EXPERIMENTS.values():
            await record_trial(world, number)
        yield Stage(world, doors)


async def record_trial(world: World, number: int) -> None:
    """With an allocation and a checkpoint."""
    trial, allocation = f"{number}-1", f"{number}-1-1"
    requested = TrialRequested(
        experiment_id=number, trial_id=trial, trial_number=1, hyperparameters={}, seed=1, target_length=10, reason=WHY
    )
    granted = AllocationGranted(
        pool="default", allocation_id=allocation, trial_id=trial, experiment_id=number, slots=SLOTS, reason=WHY
    )
    checkpoint = {"trial_id": trial, "allocation_id": allocation, "checkpoint_id": f"{allocation}-5"}
    await world.record(requested, granted, saved(5).model_copy(update=checkpoint))


async def test_every_route_is_judged_for_every_role_and_place(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = cases()
    assert len(asked) > 100
    # First with a door that does not ask for some rows: that must be seen.
    unasked = ["PUT /api/v1/pools/{pool}", "GET /api/v1/experiments/{experiment_id}/logs", "GET /api/v1/trials/{trial_id}",
               "GET /api/v1/checkpoints/{checkpoint_id}", "POST /api/v1/experiments/{experiment_id}/operations"]  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(stage.world.service.permissions, "rules", {**ROUTES, **dict.fromkeys(unasked, ANY)})
        seen = await stage.mismatches([case for case in asked if case.route in unasked], (MEMBER,))
        assert {path.split("/")[3] for _, _, path, _ in seen} == {"pools", "experiments", "trials", "checkpoints"}
    found = await stage.mismatches(asked)
    assert found == [], found
