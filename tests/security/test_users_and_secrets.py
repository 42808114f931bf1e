"""Tokens end, and what is secret stays so: attackers' scripts against a real cluster."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.security.attacker import Door, archive, user_of
from tests.support.live_cluster import LiveCluster


def test_tokens_end_are_replaced_and_taken_away(cluster: LiveCluster, admin: Door, ada: Door, eve: Door) -> None:
    shown = ada.http.get("/user").json()["token"]
    assert shown["expires_us"] - shown["created_us"] == pytest.approx(90 * 24 * 3600 * 1e6, rel=1e-3)
    made = ada.http.post("/users/ada/tokens", json={"label": "laptop"}).json()
    with closing(Door(ada.url, made["token"])) as laptop:
        assert laptop.http.get("/user").json()["token"]["label"] == "laptop"
        rotated = laptop.http.post(f"/users/ada/tokens/{made['id']}/rotate").json()
        assert laptop.http.get("/user").status_code == 401
    with closing(Door(ada.url, rotated["token"])) as laptop:
        assert laptop.http.get("/user").json()["name"] == "ada"
        assert ada.http.delete(f"/users/ada/tokens/{rotated['id']}").status_code == 200
        assert laptop.http.get("/user").status_code == 401
    short = ada.http.post("/users/ada/tokens", json={"expires_days": 1e-5}).json()
    with closing(Door(ada.url, short["token"])) as expired:
        while (answer := expired.http.get("/user")).status_code in (200, 429):  # 429: asked faster than one token may
            pass
        assert f"token {short['id']} of ada has expired" in expired.refused(answer, 401)
        cluster.environment["TENUTO_TOKEN"] = short["token"]
        try:
            done = cluster.cli("exp", "ls", check=False)
        finally:
            del cluster.environment["TENUTO_TOKEN"]
        assert "has expired" in done.stderr
    assert "90 days at most" in ada.refused(ada.http.post("/users/ada/tokens", json={"expires_days": 0}), 403)
    assert admin.http.post("/users/ada/tokens", json={"expires_days": 0}).json()["expires_us"] is None
    assert "Only ada and admins" in eve.refused(eve.http.get("/users/ada/tokens"), 403)
    assert "Only ada and admins" in eve.refused(eve.http.delete(f"/users/ada/tokens/{shown['id']}"), 403)
    for _ in range(19):
        last = ada.http.post("/users/ada/tokens", json={})
    assert "20 tokens" in ada.refused(last, 409)
    everything = admin.http.get("/events?limit=5000").text
    assert ada.token not in everything
    assert made["token"] not in everything
    assert cluster.cli("user", "token", "ls", "ada").stdout.count("laptop") == 0
    assert "which ends" not in cluster.cli("user", "whoami").stdout


VALUE = 'correct-horse-"battery"-staple'
SCRIPT = b"""
import os, sys
import tenuto
run = tenuto.init()
value = os.environ["API_KEY"]
print("the key is", value, "and has", len(value), "characters", flush=True)
print(value, file=sys.stderr)
raise RuntimeError(f"refused {value}")
"""
SECRET_CONFIG = """
name: secret
entrypoint: train.py
max_restarts: 0
environment: {variables: {API_KEY: {secret: key}, PLAIN: text}}
searcher: {name: single, metric: loss, max_length: {batches: 1}}
"""


def test_a_secret_reaches_its_worker_and_nobody_else(cluster: LiveCluster, admin: Door, eve: Door) -> None:
    with closing(user_of(admin, "olga")) as olga:
        context = archive({"train.py": SCRIPT})
        assert "you have no secret key" in olga.refused(olga.submit(SECRET_CONFIG, context), 400)
        assert olga.http.put("/secrets/key", json={"value": "short"}).status_code == 400
        assert VALUE not in olga.http.put("/secrets/key", json={"value": VALUE}).text
        assert [item["name"] for item in olga.http.get("/secrets").json()] == ["key"]
        assert eve.http.get("/secrets").json() == []
        made = olga.submit(SECRET_CONFIG, context)
        assert made.status_code == 201, made.text
        number = made.json()["id"]
        cluster.wait_for(lambda: olga.http.get(f"/experiments/{number}").json()["state"] not in ("active", "canceling"))
        lines = cluster.once(
            lambda: lines_of(olga, f"/experiments/{number}/logs"),
            lambda found: any("the key is" in line for line in found) and any("refused" in line for line in found),
        )
        assert f"the key is [secret API_KEY] and has {len(VALUE)} characters" in lines
        view = olga.http.get(f"/experiments/{number}").json()
        assert view["config"]["environment"]["secrets"] == {"API_KEY": "olga/key"}
        assert view["state"] == "failed"
        assert "refused [secret API_KEY]" in olga.http.get(f"/trials/{number}-1").json()["error"]
        stolen = eve.http.post(f"/experiments/{number}/fork", json={"overrides": {}})
        assert "is olga's secret" in eve.refused(stolen, 400)
        inline = SECRET_CONFIG.replace("{secret: key}", f"{{value: '{VALUE}', secret: true}}")
        assert VALUE not in olga.refused(olga.submit(inline, context), 400)
        everything = admin.http.get("/events?limit=5000").text
        assert "horse" not in everything
        for path in cluster.directory.rglob("*"):
            if path.is_file() and path.stat().st_size < 50 << 20:
                assert b"correct-horse" not in path.read_bytes() or path.parent.name == "secrets", path
        assert (cluster.directory / "secret.key").stat().st_mode & 0o077 == 0
        assert olga.http.delete("/secrets/key").json() == []


def lines_of(door: Door, path: str) -> list[str]:
    """Of a log; none until what writes it is there."""
    answer = door.http.get(path)
    return [line["text"] for line in answer.json()] if answer.status_code == 200 else []


WAITING = b"""
import os, pathlib, time
import tenuto
run = tenuto.init()
print("rank", os.environ["RANK"], "has", len(os.environ["API_KEY"]), "characters:", os.environ["API_KEY"], flush=True)
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.05)
raise RuntimeError("over")
"""


def test_both_ranks_of_a_gang_have_a_secret_and_a_removed_one_is_told(cluster: LiveCluster, admin: Door, tmp_path: Path) -> None:
    go = tmp_path / "go"
    config = SECRET_CONFIG.replace("max_restarts: 0", "max_restarts: 1\nresources: {slots_per_trial: 2}")
    with closing(user_of(admin, "gerda")) as gerda:
        assert gerda.http.put("/secrets/key", json={"value": VALUE}).status_code == 200
        made = gerda.submit(config.replace("PLAIN: text", f"GO: '{go}'"), archive({"train.py": WAITING}))
        assert made.status_code == 201, made.text
        number = made.json()["id"]

        def lines() -> list[str]:
            return lines_of(gerda, f"/trials/{number}-1/logs")

        shown = {f"rank {rank} has {len(VALUE)} characters: [secret API_KEY]" for rank in (0, 1)}
        assert shown <= set(cluster.once(lines, lambda found: shown <= set(found)))
        assert gerda.http.delete("/secrets/key").status_code == 200
        go.touch()
        told = cluster.once(lines, lambda found: any("waits to start" in line for line in found))
        assert "the trial waits to start: gerda has no secret key any more" in "\n".join(told)
        assert gerda.http.put("/secrets/key", json={"value": VALUE}).status_code == 200
        cluster.wait_for(lambda: gerda.http.get(f"/experiments/{number}").json()["state"] == "failed")
    assert "horse" not in admin.http.get("/events?limit=5000").text


UNSTORABLE = b"""
import tenuto
with tenuto.init() as run:
    run.report_training(1, {"a\\0b": 1.0, "c\\ud800": 2.0})
    run.report_validation(1, {"loss": 1.0, "a\\0b": 1.0, "c\\ud800": 2.0})
    run.alert("nul \\0 and half \\udc80")
    print("printed \\0", flush=True)
    raise RuntimeError("broken \\0 and \\udc80")
"""


def test_what_no_database_stores_is_shown_as_such_and_holds_up_nothing(cluster: LiveCluster, admin: Door) -> None:
    config = SECRET_CONFIG.replace("environment: {variables: {API_KEY: {secret: key}, PLAIN: text}}\n", "")
    config = config.replace("{batches: 1}", "{batches: 2}")  # so that the error comes before the end
    number = admin.submit(config, archive({"train.py": UNSTORABLE})).json()["id"]
    cluster.wait_for(lambda: admin.http.get(f"/experiments/{number}").json()["state"] == "failed")
    assert "broken \ufffd and \ufffd" in admin.http.get(f"/trials/{number}-1").json()["error"]
    [validation] = admin.http.get(f"/trials/{number}-1/validations").json()
    assert [name.rstrip("\ufffd") for name in sorted(validation["metrics"])] == ["a\ufffdb", "c", "loss"]
    lines = cluster.once(
        lambda: lines_of(admin, f"/trials/{number}-1/logs"),
        lambda found: any("nul" in line for line in found) and any("printed" in line for line in found),
    )
    assert "printed \ufffd" in lines
    assert "alert (info): nul \ufffd and half \ufffd" in lines
    points = cluster.once(lambda: admin.http.get(f"/trials/{number}-1/metrics").json(), bool)
    assert [name.rstrip("\ufffd") for name in sorted(points[0]["metrics"])] == ["a\ufffdb", "c"]
    assert admin.http.get("/status").json()["parked"] == 0
