"""Two users on one cluster: what they must not do to each other, tried by one of them with a token of their own, with a limited
one, and from a trial with its worker's token."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from tests.security.attacker import CONFIG, Door, archive
from tests.support.live_cluster import LiveCluster

TRIES: tuple[tuple[int, str, str, object], ...] = (
    # An experiment of ada's that eve sees.
    (403, "POST", "/experiments/{open}/kill", None),
    (403, "POST", "/experiments/{open}/pause", None),
    (403, "PATCH", "/experiments/{open}", {"priority": 1}),
    (403, "PATCH", "/experiments/{open}/description", {"name": "eve's"}),
    (403, "PUT", "/experiments/{open}/project", {"project": ""}),
    (403, "DELETE", "/experiments/{open}", None),
    (403, "POST", "/jobs/{open}/move", {"ahead_of": "{open}"}),
    # One in a workspace that eve does not see.
    (404, "GET", "/experiments/{hidden}", None),
    (404, "GET", "/experiments/{hidden}/logs", None),
    (404, "GET", "/trials/{hidden}-1", None),
    (404, "GET", "/trials/{hidden}-1/record", None),
    (404, "GET", "/diff?a={open}&b={hidden}", None),
    (404, "POST", "/experiments/{hidden}/fork", {"overrides": {}}),
    (404, "POST", "/experiments/{hidden}/kill", None),
    (404, "GET", "/workspaces/lab", None),
    (404, "POST", "/workspaces/lab/grants", {"kind": "user", "name": "eve", "role": "viewer"}),
    # What is ada's own, or the cluster's.
    (404, "GET", "/webhooks/ada", None),
    (404, "DELETE", "/webhooks/ada", None),
    (404, "DELETE", "/automations/ada", None),
    (403, "GET", "/users/ada/tokens", None),
    (403, "POST", "/users/ada/tokens", {"label": "eve's"}),
    (403, "PUT", "/users/ada/password", {"password": "correct horse battery staple"}),
    (403, "DELETE", "/users/ada", None),
    (403, "POST", "/grants", {"kind": "user", "name": "eve", "role": "cluster_admin"}),
    (403, "PATCH", "/workspaces/default", {"private": True}),
)
LISTS = (
    "experiments", "events?limit=5000", "allocations", "agents", "jobs", "checkpoints", "status", "workspaces", "parked",
    "webhooks", "automations", "shares",
)  # fmt: skip
WAITING = b"""
import pathlib, os, time
import tenuto
run = tenuto.init()
print("unicorn is logged", flush=True)
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.05)
raise RuntimeError("over")
"""
TRESPASSER = b"""
import gc, json, os, urllib.error, urllib.request
import grpc
import tenuto
from tenuto.schemas.wire import worker_pb2 as pb
run = tenuto.init()
[client] = [item for item in gc.get_objects() if type(item).__name__ == "AgentClient"]
bearer = dict(client._metadata)["authorization"]
found = []
for method, path in json.loads(os.environ["TRIES"]):
    request = urllib.request.Request(path, b"" if method == "POST" else None, {"Authorization": bearer}, method=method)
    try:
        found.append(urllib.request.urlopen(request, timeout=60).status)
    except urllib.error.HTTPError as error:
        found.append(error.code)
other = os.environ["OTHER"]
for call, message in (
    (client._stub.Hello, pb.HelloRequest(allocation_id=other, pid=1)),
    (client._stub.Report, pb.ReportRequest(allocation_id=other, reports=[pb.Report(sequence=1, lane="log", body=b"{}")])),
):
    try:
        call(message, metadata=client._metadata, timeout=60)
        found.append("let in")
    except grpc.RpcError as error:
        found.append(error.code().name)
print("found", json.dumps(found), flush=True)
raise RuntimeError("over")
"""
TRIAL = """
name: unicorn
entrypoint: train.py
max_restarts: 0
environment: {variables: %s}
resources: {workspace: %s, slots_per_trial: 1}
searcher: {name: single, metric: loss, max_length: {batches: 1}}
"""


def test_what_one_user_must_not_do_to_another(cluster: LiveCluster, ada: Door, eve: Door, tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert ada.http.post("/workspaces", json={"name": "lab", "private": True}).status_code == 201
    hook = {"name": "ada", "target": {"kind": "http", "url": "https://example.com"}, "triggers": [{"on": "agent_lost"}]}
    assert ada.http.post("/webhooks", json=hook).status_code == 201
    assert ada.http.put("/automations/ada", json={"rules": ["noted"]}).status_code == 200
    named = {"open": ada.submit().json()["id"]}
    made = ada.submit(TRIAL % (json.dumps({"GO": str(go)}), "lab"), archive({"train.py": WAITING}))
    named["hidden"] = made.json()["id"]
    cluster.once(lambda: ada.http.get(f"/experiments/{named['hidden']}/logs").text, lambda text: "unicorn is logged" in text)

    for status, method, path, body in TRIES:
        sent = json.loads(json.dumps(body).replace('"{open}"', str(named["open"])))
        answer = eve.http.request(method, path.format(**named), json=sent)
        assert answer.status_code == status, (method, path, answer.text)
        assert "unicorn" not in answer.text, path
    for path in LISTS:
        answer = eve.http.get(f"/{path}")
        assert answer.status_code == 200, (path, answer.text)
        assert "unicorn" not in answer.text, path
        assert '"lab"' not in answer.text, path
    assert "in workspace lab" in eve.refused(eve.submit(CONFIG.replace("{slots_per", "{workspace: lab, slots_per")), 403)

    limited = eve.http.post("/users/eve/tokens", json={"permissions": ["experiment.view", "token.change"]}).json()
    with closing(Door(eve.url, limited["token"])) as door:
        assert "limited to other permissions" in door.refused(door.submit(), 403)
        door.refused(door.http.post("/users/eve/tokens", json={"permissions": ["experiment.create"]}), 403)
        more = door.http.post("/users/eve/tokens", json={})
        assert more.status_code == 403 or set(more.json()["permissions"]) <= {"experiment.view", "token.change"}, more.text

    [other] = ada.http.get(f"/allocations?experiment={named['hidden']}").json()
    tries = [("GET", "/user"), ("GET", "/experiments"), ("GET", f"/experiments/{named['hidden']}"), ("GET", "/events"),
             ("POST", f"/experiments/{named['open']}/kill"), ("GET", "/secrets")]  # fmt: skip
    told = {"TRIES": json.dumps([(method, f"{eve.url}/api/v1{path}") for method, path in tries]), "OTHER": other["id"]}
    number = eve.submit(TRIAL % (json.dumps(told), "default"), archive({"train.py": TRESPASSER})).json()["id"]
    lines = cluster.once(
        lambda: eve.http.get(f"/experiments/{number}/logs").text, lambda text: "over" in text and "found" in text
    )
    found = json.dumps([401] * len(tries) + ["UNAUTHENTICATED"] * 2)
    assert json.dumps(f"found {found}") in lines, lines

    go.touch()
    cluster.wait_for(lambda: ada.http.get(f"/experiments/{named['hidden']}").json()["state"] == "failed")
    kept = ada.http.get(f"/experiments/{named['open']}").json()
    assert (kept["state"], kept["name"], kept["priority"]) == ("active", "digits", 42)
    assert ada.http.get("/webhooks/ada").status_code == ada.http.get("/automations/ada").status_code == 200
