"""Attackers' scripts against a real cluster: nobody else waits for them, and each gets one clear sentence."""

from __future__ import annotations

import json
import re
import time

import httpx
import psutil
import pytest

from tenuto.services.gateway.rights.permissions import Where
from tenuto.services.gateway.subjects import SUBJECTS, permissions_of
from tests.security.attacker import CONFIG, Door, archive, bystander, huge_header, user_of
from tests.support.live_cluster import LiveCluster

ROUTES = permissions_of(SUBJECTS).rules

CLOSED_SECONDS_MAX = 60.0
"""A connection that says nothing is closed after 20 s."""


def test_what_takes_long_to_read_is_refused_and_holds_up_nobody(cluster: LiveCluster, ada: Door, eve: Door) -> None:
    gateway = psutil.Process(cluster.pid("gateway"))
    before = gateway.memory_info().rss
    deep = "a: " + "[" * 1000
    with bystander(ada):
        assert "nested more than 64 levels" in eve.refused(eve.submit(deep), 400)
        assert "nested more than 64 levels" in eve.refused(eve.submit("{" * 1000), 400)
        assert "nested more than 64 levels" in eve.refused(eve.submit("? " * 1000), 400)
        bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{(f'*a{i - 1},') * 10}]\n" for i in range(1, 9))
        assert "once its aliases are expanded" in eve.refused(eve.submit(bomb), 400)
        assert "longer than 262144" in eve.refused(eve.submit("# " + "x" * 300_000), 400)
        eve.refused(eve.submit("[" + "1," * 125_000 + "]"), 400)
        assert "extended header" in eve.refused(eve.submit(context=huge_header()), 413)
        assert "unpacks to more than" in eve.refused(eve.submit(context=archive({"model_def.py": bytes(300 << 20)})), 413)
        eve.refused(eve.http.post("/experiments/1/fork", content=b"[" * 500_000), 400)
        long = json.dumps({"a" * 500_000: [1] * 90_000}).encode()  # each value's path would be half a megabyte
        assert "is too long" in eve.refused(eve.http.post("/experiments/1/fork", content=long), 400)
        chain = {f"{number}": "x/../" * 190 for number in range(3_000)}
        assert "The links of the archive" in eve.refused(eve.submit(context=archive(links=chain)), 400)
        assert "a link to a path longer" in eve.refused(eve.submit(context=archive(links={"a": "x/" * 16_000})), 400)
        body = b'{"overrides": {"name": "' + b"x" * (60 << 20) + b'"}}'
        assert "longer than" in eve.refused(eve.http.post("/experiments/1/fork", content=body), 413)
    assert gateway.memory_info().rss - before < 200 << 20, "something was read whole into the gateway"
    assert ada.submit().status_code == 201


def test_connections_that_trickle_are_closed(ada: Door) -> None:
    head, body = ada.raw(), ada.raw()
    silent = ada.raw()
    head.sendall(b"GET /api/v1/user HTT")
    body.sendall(ada.head("POST /api/v1/experiments/1/fork HTTP/1.1", "Content-Type: application/json", "Content-Length: 100"))
    began = time.monotonic()
    with bystander(ada):
        while time.monotonic() - began < CLOSED_SECONDS_MAX:
            head.settimeout(1.0)
            try:
                head.sendall(b"P")
                if not head.recv(1):
                    break
            except TimeoutError:
                body.sendall(b" ")
            except OSError:
                break
        else:
            pytest.fail("headers that trickle held a connection")
        assert silent.recv(1) == b"", "a connection that says nothing stayed"
        answer = b""
        while not answer.endswith(b"}") and (piece := body.recv(4096)):  # after 30 s; head and body may come apart
            answer += piece
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert b"came too slowly" in answer
        assert b"connection: close" in answer.lower()
        assert body.recv(1) == b"", "a sender that trickles kept its connection"


def test_one_users_streams_leave_room_for_others_and_end_with_the_user(admin: Door, ada: Door) -> None:
    mallory = user_of(admin, "mallory")
    streams = []
    for _ in range(60):
        stream = mallory.raw()
        stream.sendall(mallory.head("GET /api/v1/events/stream HTTP/1.1", "Connection: close"))
        streams.append(stream)
    answers = [stream.recv(4096) for stream in streams]
    assert sum(answer.startswith(b"HTTP/1.1 200") for answer in answers) == 50
    assert sum(answer.startswith(b"HTTP/1.1 429") for answer in answers) == 10
    with ada.http.stream("GET", "/events/stream") as response:
        assert response.status_code == 200
        assert admin.http.delete("/users/mallory").status_code == 200
        for stream, answer in zip(streams, answers, strict=True):
            if answer.startswith(b"HTTP/1.1 200"):
                while stream.recv(65_536):
                    pass  # to its end, which comes at once
        next(response.iter_bytes())
        assert mallory.http.get("/user").status_code == 401
    mallory.close()


def by_a_stranger(method: str, address: str) -> httpx.Response:
    """Without a token, at the pace that one address may have: the table has more routes than may come at once."""
    for _ in range(10):
        response = httpx.request(method, address, timeout=120)
        if response.status_code != 429:
            break
        time.sleep(float(response.headers["Retry-After"]))
    return response


def test_no_right_is_taken_that_was_not_given(admin: Door, ada: Door, eve: Door) -> None:
    """Every route of the table, asked for by somebody who may not."""
    experiment_id = ada.submit().json()["id"]
    hook = {"name": "ada", "target": {"kind": "http", "url": "https://example.com"}, "triggers": [{"on": "agent_lost"}]}
    assert ada.http.post("/webhooks", json=hook).status_code == 201
    assert ada.http.put("/automations/ada", json={"rules": ["noted"]}).status_code == 200
    for route, rule in ROUTES.items():
        method, _, template = route.partition(" ")
        path = template.replace("{experiment_id}", str(experiment_id)).replace("{name}", "ada").replace("{owner}", "user")
        path = path.replace("{automation}", "ada").replace("{workspace}", "default")
        path = re.sub(r"\{[a-z_:]+\}", "x", path)
        refused = bool(rule.others) or rule.permission.endswith(".admin")
        if refused and "{checkpoint_id}" not in template and not path.startswith("/mlflow/"):  # the handler finds out whose it is
            response = eve.http.request(method, f"{eve.url}{path}", json={})
            assert "only" in eve.refused(response, 403).lower(), route
        if rule.where is not Where.OPEN:
            assert by_a_stranger(method, f"{eve.url}{path}").status_code == 401, route
    assert ada.http.get(f"/experiments/{experiment_id}").json()["state"] == "active"
    assert admin.http.post("/log/verify").status_code == 200
    assert admin.http.post("/checkpoints/gc").status_code == 200


def test_an_idempotency_key_is_its_users_and_for_one_body(ada: Door, eve: Door) -> None:
    key = {"Idempotency-Key": "nightly"}
    first = ada.submit(**key).json()["id"]
    assert ada.submit(**key).json()["id"] == first
    assert eve.submit(**key).json()["id"] != first
    assert f"experiment {first}" in ada.refused(ada.submit(CONFIG.replace("digits", "others"), **key), 409)
    assert f"experiment {first}" in ada.refused(ada.submit(context=archive({"model_def.py": b"pass"}), **key), 409)
    fork = ada.http.post(f"/experiments/{first}/fork", json={"overrides": {"description": "x"}}, headers=key)
    assert f"experiment {first}" in ada.refused(fork, 409)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (CONFIG + 'description: "a\\0b"\n', "description must not contain the character NUL"),
        (CONFIG + 'description: "\\ud800"\n', "surrogate"),
        (CONFIG + 'hyperparameters: {"a\\0": 1}\n', "NUL"),
        (CONFIG.replace("digits", '"\\e[2Jdigits"'), r"found \x1b"),
        (CONFIG.replace("digits", '"a\\u202eb"'), "control characters"),
        (CONFIG + 'labels: ["a\\nb"]\n', "control characters"),
        (CONFIG + "hyperparameters: {a: 9223372036854775808}\n", "64 bits"),
        (CONFIG.replace("batches: 100", f"batches: {10**40}"), "64 bits"),
        (CONFIG.replace("pool: nobody", "max_slots: 3000000000"), "resources.max_slots"),
    ],
)
def test_text_and_numbers_that_nobody_could_store_or_show_are_refused(eve: Door, config: str, says: str) -> None:
    message = eve.refused(eve.submit(config), 400)
    assert says in message.replace(": must", " must")
    assert message.isprintable() or "\n" in message


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"/experiments/{2**63}", "experiment_id"),
        (f"/experiments?before={2**64}", "before"),
        (f"/checkpoints?experiment={2**70}", "experiment"),
        (f"/allocations?experiment=-{2**70}", "experiment"),
        (f"/experiments/1/trials?after={2**40}", "after"),
        ("/experiments/+7", "experiment_id is '+7', but must be a whole number"),
        ("/experiments/7.0/trials", "experiment_id"),
        ("/experiments/%207", "experiment_id"),
        (f"/events?experiment={2**64}", "experiment"),
        ("/experiments?state=%00", "NUL"),
        ("/checkpoints/a%00b", "NUL"),
        ("/checkpoints/%ff", "UTF-8"),
        ("/events?pages=2", "There is no parameter 'pages' here; allowed are after, experiment, limit, type, upto."),
        ("/experiments?limit=1&limit=2", "given twice"),
        ("/user?%1b[31m=1", r"'\x1b[31m'"),
    ],
)
def test_addresses_that_mean_nothing_are_refused(eve: Door, path: str, says: str) -> None:
    assert says in eve.refused(eve.http.get(path), 400)


@pytest.mark.parametrize("given", ["9" * 5_000, "-1", "x", "1e3", "\u0661".encode().decode("latin-1")])
def test_a_last_event_id_that_is_no_position_is_refused(eve: Door, given: str) -> None:
    refused = eve.http.get("/events/stream", headers={"Last-Event-ID": given.encode("latin-1")})
    assert "must be a log position" in eve.refused(refused, 400)


@pytest.mark.parametrize("number", ["+1", "1.0", "%201", "1_0", "%D9%A1"])
def test_an_id_in_another_way_of_writing_gives_no_right(ada: Door, eve: Door, number: str) -> None:
    ada.submit()
    assert "experiment_id" in eve.refused(eve.http.post(f"/experiments/{number}/kill"), 400)


def test_bodies_that_mean_nothing_are_refused_and_the_connection_goes_on(ada: Door) -> None:
    """All on one connection: raw, so that no client hides that it had to make another one."""
    number = ada.submit().json()["id"]
    connection = ada.raw()
    answers = ada.reading(connection)

    def ask(line: str, body: bytes = b"", *headers: str) -> tuple[int, dict[str, str], dict[str, object]]:
        sent = ada.head(line, "Content-Type: application/json", f"Content-Length: {len(body)}", *headers) + body
        connection.sendall(sent)
        status = int(answers.readline().split()[1])
        found = {}
        while line_ := answers.readline().strip().decode():
            name, _, value = line_.partition(": ")
            found[name.lower()] = value
        return status, found, json.loads(answers.read(int(found["content-length"])))

    patch = f"PATCH /api/v1/experiments/{number} HTTP/1.1"
    for line, body, expected in [
        (patch, b'{"weight": NaN}', 400),
        (patch, b'{"priority": 99999999999999999999}', 400),
        (patch, b'{"pool": "a\\u0000b"}', 400),
        (patch, b'{"pool": "\\ud800"}', 400),
        (patch, b'{"pool": ' + b"[" * 100 + b"]" * 100 + b"}", 400),
        (patch, b"{", 400),
        (patch, b"[" * 100_000, 400),
        (patch, b"\xff\xfe", 400),
        (patch, b" " * (2 << 20), 413),
        ("PATCH /api/v1/nothing HTTP/1.1", b"{}", 404),
        ("DELETE /api/v1/experiments HTTP/1.1", b"", 405),
        ("POST /api/v1/pools/x HTTP/1.1", b"{}", 405),
        ("GET /api/v1/user HTTP/1.1", b"", 200),
    ]:
        status, headers, answer = ask(line, body)
        assert status == expected, (line, body[:80], answer)
        if status == 405:
            assert headers["allow"] == ("GET, HEAD, POST" if "experiments" in line else "PUT")
        if status >= 400:
            assert "error" in answer


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ({"data": "/etc"}, "data links to /etc, outside the model directory"),
        ({"data": "../secrets"}, "outside the model directory"),
        ({"a": ".", "b": "a/../../x"}, "outside the model directory"),
        ({"d": "sub/e", "sub/e": "../..", "f": "d/x"}, "outside the model directory"),
    ],
)
def test_links_that_lead_outside_are_refused_at_once(eve: Door, links: dict[str, str], says: str) -> None:
    assert says in eve.refused(eve.submit(context=archive(links=links)), 400)


def test_links_inside_are_taken(eve: Door) -> None:
    context = archive(
        {"model_def.py": b"class Trial: ...", "lib/a.py": b""}, links={"b.py": "lib/a.py", "lib/up": "..", "c": "lib/up/lib"}
    )
    assert eve.submit(context=context).status_code == 201
