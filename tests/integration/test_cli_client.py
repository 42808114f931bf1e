"""The command line's client against a real HTTP server: errors in words, exact bytes, streams that go on."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import psutil
import pytest
from typer.testing import CliRunner

from tenuto.cli.common import talking_to
from tenuto.cli.errors import CliError
from tenuto.cli.jobs import note_if_too_large, waiting_for
from tenuto.cli.main import app
from tenuto.client import Client, ClientError, Target, waiting
from tenuto.client.messages import split_array
from tenuto.schemas.config.resources import Resources


class Handler(BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, str, bytes, str]]] = []
    streams: ClassVar[list[bytes]] = []
    failures: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        self._seen(b"")
        if self.failures:
            self._answer(self.failures.pop(0), b"{}")
        elif "/events/stream" in self.path and not self.streams:
            self._answer(503 if len(self.seen) < 3 else 401, b"{}")
        elif "/events/stream" in self.path:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.streams.pop(0))
        elif self.path.startswith("/api/v1/events"):
            self._answer(
                200, b'[ {"position":1,"data":{"x":1.0}} ,{"position":2,"data":{"x":"]"}}]' if "after=0" in self.path else b"[]"
            )
        elif self.path == "/api/v1/experiments/1":
            self._answer(401, b"{}")
        elif self.path == "/api/v1/experiments/2":
            self._answer(404, b'{"error":{"code":"not_found","message":"There is no experiment 2."}}')
        elif self.path == "/api/v1/experiments/4":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{")
        elif self.path == "/api/v1/experiments/3":
            self._answer(502, b"<html>")
        else:
            self._answer(200, b"[]")

    def do_POST(self) -> None:
        self._seen(self.rfile.read(int(self.headers["Content-Length"])))
        if "bad" in self.path:
            self._answer(422, b'{"error":{"code":"invalid","message":"must be one","path":"searcher.name"}}')
        else:
            self._answer(201, b'{"id":1}')

    def _seen(self, body: bytes) -> None:
        self.seen.append((self.path, self.headers.get("Authorization", ""), body, self.headers.get("Last-Event-ID", "")))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.seen.clear()
    Handler.streams.clear()
    Handler.failures.clear()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def rest(url: str) -> Client:
    return talking_to(Target(url, "secret", "token-file"))


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (1, "refused the token from token-file: give the one that its first start wrote"),
        (2, "^There is no experiment 2.$"),
        (3, "answered 502"),
        (4, r"broke off the connection \(IncompleteRead.*\): try again.$"),
    ],
)
def test_refusals_in_words(rest: Client, experiment: int, message: str) -> None:
    with pytest.raises(ClientError, match=message):
        rest.get(f"/experiments/{experiment}")


def test_what_was_submitted_is_no_error_where_the_scheduler_is_away(rest: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """What is asked of it is said beside the answer, and not instead of it."""
    Handler.failures += [503, 503]
    note_if_too_large(rest, Resources())
    assert waiting_for(rest, 1) == ""
    assert [path.partition("?")[0] for path, *_ in Handler.seen] == ["/api/v1/jobs", "/api/v1/jobs"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["abc", "0", "3-7", "1.5"])
def test_what_is_no_experiment_is_told_before_the_cluster_is_asked(url: str, text: str) -> None:
    result = CliRunner().invoke(app, ["--url", url, "exp", "describe", text])
    assert isinstance(result.exception, CliError)
    assert str(result.exception).startswith(f"{text} is not the id of an experiment, which is a number from 1; ")
    assert not Handler.seen


def test_a_path_is_told(rest: Client) -> None:
    with pytest.raises(ClientError, match=r"^searcher.name: must be one$"):
        rest.post("/bad")


@pytest.mark.parametrize(
    ("host", "remedy"),
    [("127.0.0.1", "`tenuto up` starts the one on this machine"), ("127.0.0.9", "Check the address, and that")],
)
def test_nobody_there(host: str, remedy: str) -> None:
    with pytest.raises(ClientError, match=rf"^The cluster at http://{host}:1 cannot be reached: it does not answer\. {remedy}"):
        Client(Target(f"http://{host}:1", "", "")).get("/status")


def test_not_a_url() -> None:
    with pytest.raises(ClientError, match="is not the URL of a cluster"):
        Client(Target("localhost", "", ""))


def test_events_keep_their_bytes(rest: Client) -> None:
    assert list(rest.event_bodies()) == [b'{"position":1,"data":{"x":1.0}}', b'{"position":2,"data":{"x":"]"}}']


def test_split_array() -> None:
    assert split_array(b"[]") == []
    assert split_array(' [{"a": "é, ]"},\n{"b":[1, 2]}] '.encode()) == ['{"a": "é, ]"}'.encode(), b'{"b":[1, 2]}']


def test_a_stream_goes_on_where_it_broke(rest: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "RECONNECT_SECONDS", 0.0)
    Handler.streams += [
        b': hello\n\nid: 4\ndata: {"position":4,"data":{}}\n\nid: 5\ndata: {"posi',
        b'id: 5\ndata: {"position":5,"data":{}}\n\n',
    ]
    events = rest.follow(3, experiment=7)
    assert [next(events)[0]["position"], next(events)[0]["position"]] == [4, 5]
    assert [(path, last) for path, _, _, last in Handler.seen] == [
        ("/api/v1/events/stream?after=3&experiment=7", "3"),
        ("/api/v1/events/stream?after=4&experiment=7", "4"),
    ]


def test_a_stream_waits_for_a_cluster_that_is_away_but_not_for_one_that_refuses(
    rest: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "RECONNECT_SECONDS", 0.0)
    with pytest.raises(ClientError, match="refused the token"):
        next(rest.follow(0))
    assert len(Handler.seen) == 3


def test_a_command_that_waits_says_so_and_gives_up_in_the_end(
    rest: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "RECONNECT_SECONDS", 0.0)
    Handler.failures += [503, 502]
    assert rest.wait_get("/agents") == []
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2, "once at the beginning and once at the end"
    assert "answered 503" in said[0]
    assert said[0].endswith("This command waits, for at most 10 minutes.")
    assert said[1] == "The cluster answers again."
    monkeypatch.setattr(waiting, "OUTAGE_SECONDS_MAX", -1.0)
    Handler.failures += [503, 503]
    with pytest.raises(ClientError, match="answered 503"):
        rest.wait_get("/agents")
    Handler.failures[:] = [500]
    with pytest.raises(ClientError, match="answered 500"):  # an error of ours stays one
        rest.wait_get("/agents")


def test_no_connection_stays_open(rest: Client, url: str) -> None:
    def open_connections() -> list[Any]:
        port = int(url.rsplit(":", 1)[1])
        return [
            item for item in psutil.Process().net_connections("tcp") if item.fd != -1 and item.raddr and item.raddr.port == port
        ]

    rest.get("/agents")
    assert list(rest.event_bodies())
    for experiment in (1, 2, 3, 4):
        with pytest.raises(ClientError) as kept:  # a kept error keeps the frames, and so what they hold
            rest.get(f"/experiments/{experiment}")
        assert kept is not None
    with rest.open("/checkpoints/1/download") as response:
        assert open_connections()
    assert response.raw.closed
    Handler.streams += [b'data: {"position":4,"data":{}}\n\ndata: {"position":5,"data":{}}\n\n']
    events = rest.follow(3)
    next(events)
    assert open_connections()
    events.close()
    assert open_connections() == []


def test_submission_is_a_form(rest: Client) -> None:
    assert rest.submit(b"name: x", io.BytesIO(b"\x1f\x8barchive"), 9) == {"id": 1}
    path, authorization, body, _ = Handler.seen[0]
    assert (path, authorization) == ("/api/v1/experiments", "Bearer secret")
    parts = body.split(b"\r\n--")
    assert parts[0].endswith(b'name="config"\r\n\r\nname: x')
    assert parts[1].endswith(b"\r\n\r\n\x1f\x8barchive")


def test_commands_with_json_print_json(url: str) -> None:
    environment = {"TENUTO_URL": url, "TENUTO_TOKEN": "secret"}
    for command in (["exp", "ls"], ["ckpt", "ls"], ["agent", "ls"], ["exp", "metrics", "9"]):
        result = CliRunner().invoke(app, [*command, "--json"], env=environment)
        assert (result.exit_code, json.loads(result.output)) == (0, []), command
