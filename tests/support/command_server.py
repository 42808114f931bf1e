"""The process that tests.support.commands forks commands from. It is a script of its own: of the tests it imports nothing, and a
command finds what it would find if it were started alone."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import typer

REQUEST_BYTES_MAX = 200_000
"""Arguments and environment: as much as one message of such a socket may hold."""
AHEAD = (
    "asyncio", "ssl", "zoneinfo", "email.utils", "rich.live", "rich.table",
    *(f"tenuto.cli.{name}" for name in ("describe", "experiment_story", "follow", "origin", "replay")),
    *(f"tenuto.client.{name}" for name in ("blocking", "events", "files", "packing")),
    *(f"tenuto.client.{name}" for name in ("notebook_html", "submitting", "tables", "waiting")),
    *("tenuto.embedded.nats", "tenuto.embedded.process", "tenuto.kernel.settings"),
    *(f"tenuto.services.{name}.core" for name in ("gateway", "launcher", "scheduler", "searcher", "tracker")),
)  # fmt: skip
"""What commands import only when they run, so that `--help` is quick: all that some command of the tests was seen to import,
without frameworks."""
TENUTO = Path(sys.executable).with_name("tenuto")
_ENDS = runpy.run_path(str(Path(__file__).with_name("forked_ends.py")))
to_its_end: Callable[..., int] = _ENDS["to_its_end"]
leave: Callable[[int], NoReturn] = _ENDS["leave"]
_clusters: dict[str, Any] = {}
"""forked_clusters.py, once a cluster was started."""


def next_command(door: socket.socket) -> bool:
    """Forks a command for each request. True in such a fork, False when the door is closed."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([door, *running], [], [])
        for descriptor in ready:
            if descriptor is not door:
                pid, answers = running.pop(descriptor)
                os.close(descriptor)
                with answers:
                    _tell(answers, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            request, descriptors, _, _ = socket.recv_fds(door, REQUEST_BYTES_MAX, 3)
            if not request:
                return False
            out, err, number = descriptors
            answers = socket.socket(fileno=number)
            if starts_cluster(asked := json.loads(request)) and not _clusters:
                _clusters.update(runpy.run_path(str(Path(__file__).with_name("forked_clusters.py"))))
                _clusters["import_ahead"]()
                freeze()
            pid = os.fork()
            if pid == 0:
                for other, (_, socket_of_other) in running.items():
                    os.close(other)
                    socket_of_other.close()
                door.close()
                answers.close()
                become(asked, out, err)
                return True
            os.close(out)
            os.close(err)
            running[os.pidfd_open(pid)] = pid, answers
            _tell(answers, pid)


def starts_cluster(request: dict) -> bool:
    """True for `tenuto up --detach`."""
    return request["arguments"][0] == "up" and "--detach" in request["arguments"]


def _tell(answers: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # whoever asked waits no more
        answers.send(str(number).encode())


def become(request: dict, out: int, err: int) -> None:
    """Makes this process that of the command."""
    for descriptor, number in ((out, 1), (err, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = [str(TENUTO), *request["arguments"]]
    if starts_cluster(request):
        _clusters["fork_supervisor"]()


def command() -> None:
    from tenuto.cli.main import main

    main()


def serve(door: socket.socket) -> None:
    sys.path[0] = str(TENUTO.parent)  # as for the command itself
    from tenuto.cli.main import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)
    for name in AHEAD:
        importlib.import_module(name)
    freeze()
    if next_command(door):
        leave(to_its_end(command))


def freeze() -> None:
    """Forks share the memory of what was imported."""
    assert threading.active_count() == 1, "a fork has no thread but the one that forks"
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
