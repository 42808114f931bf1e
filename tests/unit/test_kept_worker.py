"""A worker that stays: which of our own state is cleared, which code is the user's, and which configurations ask for it."""

from __future__ import annotations

import _thread
import ast
import atexit
import os
import select
import signal
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from pydantic import ValidationError

from tenuto.schemas.config.environment import Environment
from tenuto.workers.harness import kept_worker, leftovers, process_state, run_leader
from tenuto.workers.harness.kept_worker import CACHES, CLEARED, KeptWorker
from tenuto.workers.harness.users_code import UsersCode, still_held

WORKERS = Path(__file__).parents[2] / "workers"
SECONDS_MAX = 30
"""Longest wait for a forked process."""
GIVEN_BACK_ELSEWHERE = {
    "tenuto.workers.pytorch.seeds": "_one_device",  # workers/pytorch/kept_state.py
    "tenuto.workers.keras.randomness": "_one_gpu",  # a worker with Keras does not stay
    "tenuto.workers.horovod.rendezvous": "_prepared",  # of gangs, which have processes of their own
}

HOLD_NO_CLASS = {
    "tenuto.workers.checkpoints.exactness": ("processor",),
    "tenuto.workers.harness.frameworks": ("_loaded",),
    "tenuto.workers.record.environment": ("_read_distributions",),
}


def test_variables_that_our_modules_set_are_cleared() -> None:
    found = {}
    for path in WORKERS.rglob("*.py"):
        module = f"tenuto.workers.{'.'.join(path.relative_to(WORKERS).with_suffix('').parts)}"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Global) and "agent" not in path.parts:
                found[module] = ", ".join(node.names)
    assert found == CLEARED | GIVEN_BACK_ELSEWHERE, "give a new one back in kept_worker.py, or say here who does"


def test_caches_of_our_functions_are_cleared() -> None:
    found: dict[str, tuple[str, ...]] = {}
    for path in WORKERS.rglob("*.py"):
        module = f"tenuto.workers.{'.'.join(path.relative_to(WORKERS).with_suffix('').parts)}"
        for node in ast.walk(ast.parse(path.read_text())) if not {"agent", "keras"} & set(path.parts) else ():
            if isinstance(node, ast.FunctionDef) and any(
                "cache" in ast.unparse(one).split("(")[0] for one in node.decorator_list
            ):
                found[module] = (*found.get(module, ()), node.name)
    assert found == CACHES | HOLD_NO_CLASS, (
        "clear a new one in kept_worker.py, or say here that it holds none of the user's classes"
    )


def test_only_the_users_modules_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_user.py").write_text("import this_users_second\nclass Mine: pass\ndef mine(): pass\nSTATE = []\n")
    (tmp_path / "this_users_second.py").write_text("")
    (tmp_path / "compiled_of_a_user.py").write_text("__file__ = 'here.abi3.so'\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, before = UsersCode(), set(sys.modules)
    module = import_module("of_a_user")
    import_module("colorsys")  # of Python
    module.STATE.append(1)
    assert code.unforgettable() == ""
    holder = [module.mine]
    held = code.forget()
    assert set(sys.modules) - before <= {"colorsys"}
    del module
    assert still_held(held) == "something outside of it holds the trial's code (Mine)"
    holder.clear()
    assert still_held(held) == ""
    assert import_module("of_a_user").STATE == []
    import_module("compiled_of_a_user")
    assert code.unforgettable() == "compiled_of_a_user is compiled code, which Python loads once"
    code.forget()
    assert set(sys.modules) - before <= {"colorsys"}


def test_modules_that_code_has_made_belong_to_the_package_whose_name_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    code = UsersCode()
    for name, file in (("json.made", None), ("json.named", "_named.py"), ("of_nobody_known", None)):
        module = ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, name, module)
    code.forget()
    assert {"json.made", "json.named"} <= set(sys.modules)
    assert "of_nobody_known" not in sys.modules


def test_a_module_that_was_replaced_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import colorsys

    code = UsersCode()
    monkeypatch.setitem(sys.modules, "colorsys", type(sys)("colorsys"))
    code.forget()
    assert sys.modules["colorsys"] is colorsys


def test_finders_of_libraries_stay_and_those_of_the_user_go() -> None:
    of_a_library = type("Finder", (), {"__module__": "json"})()
    of_a_user = type("Finder", (), {"__module__": "of_a_user"})()
    first, second = object(), object()
    for now, then in (
        ([of_a_library, first, second, of_a_user, None], [of_a_library, first, second]),
        ([of_a_user, first, second, of_a_library], [first, second, of_a_library]),
        ([second], [first, second]),
    ):
        process_state._give_back_finders(now, [first, second])
        assert now == then


def test_exit_handlers_and_limits_that_changed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, left = process_state._limits(), leftovers.Leftovers()
    assert (limits(), left._at_end()) == ("", "")
    monkeypatch.setattr(atexit, "_ncallbacks", lambda: -1)
    monkeypatch.setattr(os, "getpriority", lambda *_: 19)
    assert limits()
    assert left._at_end()


def test_the_setting_is_written_only_where_it_is_used() -> None:
    assert "reuse_worker" not in Environment().model_dump_json()
    assert '"reuse_worker":true' in Environment(reuse_worker=True).model_dump_json()
    with pytest.raises(ValidationError, match="reuse_worker is for processes of the node"):
        Environment.model_validate({"image": "python:3.12", "reuse_worker": True})


@pytest.mark.parametrize("private", [False, True])
def test_open_files_are_found_where_a_process_may_not_look_at_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    if private:
        monkeypatch.setattr(os, "listdir", refuse)
        monkeypatch.setattr(os, "readlink", refuse)
    monkeypatch.setattr(leftovers, "SETTLE_SECONDS_MAX", 0.0)
    left = leftovers.Leftovers()
    assert left._files_left() == ""
    with (tmp_path / "open").open("w"):
        assert left._files_left().startswith("it left open files (" + ("file " if private else str(tmp_path)))
    assert left._files_left() == ""


@pytest.mark.parametrize("how", ["time", "agent", "order", "killed"])
def test_a_waiting_worker_is_given_up(how: str) -> None:
    """In a fork, as a leader handles signals."""
    control, agent = socket.socketpair()
    if (leader := os.fork()) == 0:
        try:
            run_leader.KEPT_SECONDS_MAX = 0.0 if how == "time" else 600.0
            agent.close()
            if (worker := os.fork()) == 0:
                signal.alarm(SECONDS_MAX)
                signal.pause()
            found = run_leader.RunLeader(control, socket.socketpair()[0], worker, adopts=True)
            found._wake_at_ends()
            control.sendall(b"w")
            line = found._wait_order()
            expected = b"an order" if how == "order" else b""
            os._exit(0 if line == expected and _is_there(worker) == (how == "order") else 1)
        finally:
            os._exit(2)
    control.close()
    agent.settimeout(SECONDS_MAX)
    assert agent.recv(1) == b"w"
    if how == "agent":
        agent.close()
    elif how == "order":
        agent.sendall(b"an order\n")
    elif how == "killed":
        (worker,) = run_leader._children(leader)
        os.kill(worker, signal.SIGKILL)
    assert _exit_code(leader) == 0
    agent.close()


def _exit_code(child: int) -> int:
    descriptor = os.pidfd_open(child)
    try:
        if not select.select([descriptor], [], [], SECONDS_MAX)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_giving_back_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_worker, "GIVE_BACK_SECONDS_MAX", 0.01)
    if (child := os.fork()) == 0:
        try:
            with kept_worker._deadline(7):
                threading.Event().wait(SECONDS_MAX)
        finally:
            os._exit(1)
    assert _exit_code(child) == 7
    before = _thread._count()
    with kept_worker._deadline(7):
        assert _thread._count() == before + leftovers.OWN_THREADS


def test_a_run_that_cannot_begin_does_not_end_like_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no such directory")

    link, leader = socket.socketpair()
    with link, leader:
        worker = KeptWorker(link, {}, lambda: None)
        monkeypatch.setattr(worker, "_left", SimpleNamespace(that_runs=str, uses_helpers=str), raising=False)
        monkeypatch.setattr(worker, "_give_back", str)
        monkeypatch.setattr(kept_worker, "begin_run", refuse)
        monkeypatch.setattr(os, "_exit", sys.exit)
        leader.sendall(b'{"mark": ""}\n')
        with pytest.raises(SystemExit) as ended:
            worker.next(0, print)
    assert ended.value.code == 1


def test_what_still_runs_is_found_before_anything_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    link, leader = socket.socketpair()
    with link, leader:
        worker = KeptWorker(link, {}, lambda: None)
        monkeypatch.setattr(
            worker, "_left", SimpleNamespace(that_runs=lambda: "it left threads (mine)", uses_helpers=str), raising=False
        )
        monkeypatch.setattr(worker, "_give_back", lambda: str(given.append("all")))
        said: list[str] = []
        assert not worker.next(0, said.append)
    assert (given, said) == ([], ["this process is not used for the next trial: it left threads (mine)"])


def _is_there(worker: int) -> bool:
    try:
        os.kill(worker, 0)
    except ProcessLookupError:
        return False
    os.kill(worker, signal.SIGKILL)
    return True
