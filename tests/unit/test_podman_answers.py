"""Answers of podman where Docker answers otherwise, as its sources and issues have them, and as podman 4.3 was seen to
answer. podman itself runs the contract of runtimes where it is installed (tests/contract/test_runtime.py)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.kernel.optional import needed
from tenuto.workers.agent.runtimes.docker.engine import Engine
from tenuto.workers.agent.runtimes.docker.presence import Presence
from tests.support import real_parts

real_parts.package("docker")

NAME = "tenuto-1-1-1"
IN_USE = (
    f'container create: creating container storage: the container name "{NAME}" is already in use by 0123. You have to remove '
    "that container to be able to reuse that name: that name is already in use"
)


class Daemon(ThreadingHTTPServer):
    """Answers with what `says` has for a request, else that there is no such page."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.says: dict[str, list[tuple[int, object]]] = {}
        """Answers that follow each other, by method and path; the last one stays."""
        self.asked: list[str] = []

    def engine(self, directory: Path) -> Engine:
        docker = needed("docker")

        engine = Engine("", str(directory))
        engine._connected = docker.APIClient(f"tcp://127.0.0.1:{self.server_port}", version="1.41")
        engine._presence = Presence("", lambda: None, here=True)
        return engine


class _Answers(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server = cast(Daemon, self.server)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = f"{self.command} {self.path.partition('?')[0].removeprefix('/v1.41')}"
        server.asked.append(request)
        answers = server.says.get(request, [(404, "Not Found")])
        status, said = answers.pop(0) if len(answers) > 1 else answers[0]
        body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(said, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - names that http.server looks for

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    server = Daemon()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [409, 500])
async def test_a_container_of_an_earlier_try_gives_its_name_to_the_next(daemon: Daemon, tmp_path: Path, status: int) -> None:
    daemon.says = {
        "POST /containers/create": [(status, {"message": IN_USE}), (201, {"Id": "4567", "Warnings": []})],
        f"DELETE /containers/{NAME}": [(204, "")],
    }
    engine = daemon.engine(tmp_path)
    assert await engine.create(NAME, {"Image": "x"}) == "4567"
    assert daemon.asked == ["POST /containers/create", f"DELETE /containers/{NAME}", "POST /containers/create"]
    engine.close()


ENDED = f"can only kill running containers. {NAME} is in state exited: container state improper"


@pytest.mark.parametrize("answer", [(404, "no such container"), (409, {"message": "is not running"}), (500, {"message": ENDED})])
async def test_a_container_that_does_not_run_is_killed_already(
    daemon: Daemon, tmp_path: Path, answer: tuple[int, object]
) -> None:
    daemon.says = {f"POST /containers/{NAME}/kill": [answer]}
    engine = daemon.engine(tmp_path)
    await engine.kill(NAME)
    daemon.says = {f"POST /containers/{NAME}/kill": [(500, {"message": "the runtime does not answer"})]}
    with pytest.raises(OSError, match="the runtime does not answer"):
        await engine.kill(NAME)
    engine.close()


@pytest.mark.parametrize("said", ["no space left on device", "crun: address already in use", "no such network: name"])
async def test_other_failures_remove_nothing(daemon: Daemon, tmp_path: Path, said: str) -> None:
    daemon.says = {"POST /containers/create": [(500, {"message": said})]}
    engine = daemon.engine(tmp_path)
    with pytest.raises(OSError, match=said):
        await engine.create(NAME, {"Image": "x"})
    assert daemon.asked == ["POST /containers/create"]
    engine.close()


@pytest.mark.parametrize("answer", [(404, "Not Found"), (405, ""), (501, ""), (500, {"message": "update is not supported"})])
async def test_a_daemon_that_changes_no_shares_is_known_from_its_first_answer(
    daemon: Daemon, tmp_path: Path, answer: tuple[int, object]
) -> None:
    there = {"State": {"Status": "running"}, "HostConfig": {"Memory": 0}}
    daemon.says = {f"POST /containers/{NAME}/update": [answer], f"GET /containers/{NAME}/json": [(200, there)]}
    engine = daemon.engine(tmp_path)
    assert engine.changes_shares
    assert not await engine.share_processors(NAME, 1024)
    assert not engine.changes_shares
    engine.close()


@pytest.mark.parametrize(("status", "said"), [(404, "no such container"), (500, "out of memory")])
async def test_a_failure_of_one_change_says_nothing_of_others(daemon: Daemon, tmp_path: Path, status: int, said: str) -> None:
    daemon.says = {f"POST /containers/{NAME}/update": [(status, {"message": said}), (200, {"Warnings": []})]}
    engine = daemon.engine(tmp_path)
    with pytest.raises(OSError, match=said):
        await engine.share_processors(NAME, 1024)
    assert await engine.share_processors(NAME, 1024)
    assert engine.changes_shares
    engine.close()
