"""The part that runs on a host: sent there with each request, and read from standard input, so nothing of it is installed there.
Needs Linux, and imports nothing of Tenuto. `host_files.py` and `host_install.py` are sent before it, and run in the same module.

A node is a directory with files about it, and a keeper: a process of its own session that starts the agent, waits for its end,
ends what it leaves behind, and writes down how it ended. Who asks reads files and looks at processes; there is no daemon.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # on a host it is the same module
    from tenuto.services.launcher.adapters.provisioners.ssh.host_files import (
        LOOK_SECONDS,
        PASSED,
        PR_SET_CHILD_SUBREAPER,
        below,
        boot,
        identity,
        lives,
        load,
        send,
        short_directories,
        tail,
        write,
    )
    from tenuto.services.launcher.adapters.provisioners.ssh.host_install import Installations, InstallFailed, pip_environment

MARK = "TENUTO-ANSWER "
"""Prefix of the line with the answer: shells of some accounts print before it."""
LOCK_SECONDS_MAX = 10.0
"""Longest wait for another request at this host."""
REST_SECONDS_MAX = 5.0
"""Time that processes which an agent left behind have to end by themselves."""
IMPORT_SECONDS_MAX = 30.0
"""Longest time until Python has said the version of Tenuto: network file systems are slow at first."""
KEEP_SECONDS = 7 * 86400.0
"""Time for which a node that has ended is listed, and its log kept."""
LISTED_MAX = 200
TEMPORARY = "/tmp"
"""Usual temporary directory, where the account's session names none."""


class Base:
    """Directory of this host: home directories are often common to many. One request at a time."""

    def __init__(self, directory: str, locked: bool = True) -> None:
        """`locked`: False for one that takes long and touches no node."""
        os.umask(0o077)
        self.path = os.path.join(os.path.expanduser(directory), os.uname().nodename)
        self.nodes = os.path.join(self.path, "nodes")
        os.makedirs(self.nodes, mode=0o700, exist_ok=True)
        self.installations = Installations(self.path)
        self.lock = os.open(os.path.join(self.path, "lock"), os.O_CREAT | os.O_RDWR, 0o600)
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while locked:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"another request holds {self.path}") from None
                time.sleep(0.05)

    def identity(self) -> str:
        """The same at each request; another host's is another."""
        path = os.path.join(self.path, "identity.json")
        known = load(path)
        if not isinstance(known, str):
            known = os.urandom(16).hex()
            write(path, known)
        return known

    def place(self, entry: str) -> str:
        if not (entry.isalnum() and len(entry) == 20):
            raise RuntimeError("there is no such node")
        return os.path.join(self.nodes, entry)

    def look(self) -> list[dict[str, Any]]:
        found = []
        for entry in os.listdir(self.nodes):
            place = os.path.join(self.nodes, entry)
            node = load(os.path.join(place, "node.json"))
            if node is None:  # what wrote it was killed before it began anything
                remove(place)
                continue
            ended = load(os.path.join(place, "ended.json"))
            if ended is None:
                ended = self.end_of(place)
            if ended is not None and ended["at"] < time.time() - KEEP_SECONDS:
                remove(place)
                continue
            stopped = os.path.exists(os.path.join(place, "stopped"))
            node.update(entry=entry, phase="running" if ended is None else "ended")
            node["detail"] = ended["detail"] if ended is not None else "it was told to end" if stopped else ""
            if ended is None and not load(os.path.join(place, "process.json"))["agent"]:
                node.update(
                    phase="pending", detail=node["detail"] or f"Tenuto is being installed for {time.time() - node['at']:.0f} s"
                )
            found.append(node)
        found.sort(key=lambda node: (node["phase"] == "ended", -node["at"]))
        return found[:LISTED_MAX]

    def end_of(self, place: str) -> dict[str, Any] | None:
        """End of a node, as its keeper wrote it; written here if the node ended unobserved. None: it has not ended."""
        known = load(os.path.join(place, "process.json"))
        if known is None:
            detail = "its start was cut off"
        elif known["boot"] != boot():
            detail = "the host was started anew"
        elif lives(known["keeper"]) or lives(known["agent"]):
            return None
        else:
            detail = "it was killed"
        written = load(os.path.join(place, "ended.json"))  # by its keeper, since this look began
        return written or write_end(place, None, detail)


def start(base: Base, asked: dict[str, Any]) -> dict[str, Any]:
    entry = hashlib.sha256("\0".join((asked["cluster"], asked["pool"], asked["node_id"])).encode()).hexdigest()[:20]
    nodes = base.look()
    if any(node["entry"] == entry for node in nodes):
        return {"state": "there"}
    if any(node["phase"] != "ended" for node in nodes):
        return {"state": "busy"}
    wanted = asked.get("install")
    if wanted and base.installations.state(wanted, asked["python"])["missing"]:
        return {"state": "missing"}
    place = base.place(entry)
    os.makedirs(os.path.join(place, "agent"), mode=0o700)
    node = {name: asked[name] for name in ("cluster", "pool", "node_id")}
    write(os.path.join(place, "node.json"), dict(node, at=time.time(), install=wanted["name"] if wanted else ""))
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        try:
            os.close(base.lock)
            keep(base, place, asked, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode(errors="replace")
    if said != "started":
        remove(place)
        raise RuntimeError(said or "the agent cannot be started")
    return {"state": "started"}


def keep(base: Base, place: str, asked: dict[str, Any], writing: int) -> None:
    """The keeper's life."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(os.path.join(place, "agent.log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for number, target in ((0, nothing), (1, log), (2, log)):
        os.dup2(target, number)  # else the session of SSH would wait for this process
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what the agent leaves behind becomes this process's child
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    environment.update(asked["environment"], TENUTO_AGENT_DIRECTORY=os.path.join(place, "agent"))
    known = {
        "boot": boot(), "keeper": identity(os.getpid()), "agent": [], "stop_seconds": asked["stop_seconds"],
        "temporary": environment.get("TMPDIR") or TEMPORARY,
    }  # fmt: skip
    command, stopped = asked["command"], os.path.join(place, "stopped")
    if asked.get("install"):
        write(os.path.join(place, "process.json"), known)
        os.write(writing, b"started")
        os.close(writing)
        try:
            python = base.installations.install(asked["install"], asked["python"], pip_environment(asked["environment"]), place)
        except (InstallFailed, OSError, ValueError, subprocess.SubprocessError) as error:
            end_rest()
            words = f"Tenuto cannot be installed: {getattr(error, 'strerror', None) or error}"
            write_end(place, None, "it was told to end" if os.path.exists(stopped) else words)
            os._exit(0)
        if os.path.exists(stopped):
            write_end(place, None, "it was told to end")
            os._exit(0)
        command = [python, *command[1:]]
        environment["PATH"] = os.pathsep.join([os.path.dirname(python), environment.get("PATH", os.defpath)])
    try:
        agent = subprocess.Popen(command, env=environment, cwd=place, start_new_session=True)
    except OSError as error:
        if asked.get("install"):
            write_end(place, None, f"{command[0]}: {error.strerror or error}")
        else:
            os.write(writing, f"{command[0]}: {error.strerror or error}".encode())
        return
    signal.signal(signal.SIGTERM, lambda *_: send([agent.pid], signal.SIGTERM))
    write(os.path.join(place, "process.json"), dict(known, agent=identity(agent.pid)))
    if not asked.get("install"):
        os.write(writing, b"started")
        os.close(writing)
    code = wait(agent, stopped, asked["stop_seconds"])
    end_rest()
    words = tail(os.path.join(place, "agent.log"), 1).strip()[:200] if code else ""
    how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    write_end(place, code, ": ".join(item for item in (how if code else "", words) if item))
    os._exit(0)


def remove(path: str) -> None:
    """Removes a file or directory by `rm` and `chmod`, because trials may leave closed directories, and more nested ones than
    Python's own function can remove."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if os.path.lexists(path):
            with contextlib.suppress(OSError):
                subprocess.run([*command, "--", path], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def write_end(place: str, code: int | None, detail: str) -> dict[str, Any]:
    agent, known = os.path.join(place, "agent"), load(os.path.join(place, "process.json")) or {}
    for path in (*short_directories(agent, known.get("temporary", TEMPORARY)), agent):
        remove(path)
    ended = {"code": code, "at": time.time(), "detail": detail}
    write(os.path.join(place, "ended.json"), ended)
    return ended


def wait(agent: subprocess.Popen[bytes], stopped: str, stop_seconds: float) -> int:
    told: float | None = None
    while True:
        try:
            return agent.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if told is None and os.path.exists(stopped):
                told = time.monotonic()
            if told is not None and time.monotonic() - told > stop_seconds:
                send([agent.pid], signal.SIGKILL)


def end_rest() -> None:
    """Ends all that the agent left behind."""
    deadline = time.monotonic() + REST_SECONDS_MAX
    number = signal.SIGTERM
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        send(below(os.getpid()), number)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(LOOK_SECONDS)


def stop(base: Base, asked: dict[str, Any]) -> dict[str, Any]:
    place = base.place(asked["entry"])
    known = load(os.path.join(place, "process.json"))
    if known is None or known["boot"] != boot() or os.path.exists(os.path.join(place, "ended.json")):
        return {}
    stopped = os.path.join(place, "stopped")
    if not os.path.exists(stopped):
        write(stopped, time.time())
    if lives(known["agent"]):
        # Without its keeper, the next request is the one that ends it.
        late = time.time() - (load(stopped) or 0) > known["stop_seconds"] and not lives(known["keeper"])
        pids = [known["agent"][0]]
        send([*below(pids[0]), *pids] if late else pids, signal.SIGKILL if late else signal.SIGTERM)
    return {}


def check(base: Base, asked: dict[str, Any]) -> dict[str, Any]:
    wanted = asked.get("install")
    if wanted:
        return base.installations.state(wanted, asked["python"])
    command = [asked["python"], "-c", "import tenuto.version as version; print(version.__version__)"]
    said = subprocess.run(command, capture_output=True, timeout=IMPORT_SECONDS_MAX, cwd="/", check=False)
    words = said.stderr.decode(errors="replace").strip().splitlines()
    return {"version": said.stdout.decode(errors="replace").strip(), "problem": words[-1] if said.returncode and words else ""}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    do = asked["do"]
    base = Base(asked["directory"], locked=do != "put")
    if do == "put":
        return base.installations.put(asked["file"], sys.stdin.buffer)
    if do == "start":
        return start(base, asked)
    if do == "stop":
        return stop(base, asked)
    if do == "logs":
        return {"text": tail(os.path.join(base.place(asked["entry"]), "agent.log"), asked["lines_max"])}
    found = {"nodes": base.look(), "identity": base.identity()}
    return dict(check(base, asked), **found) if do == "check" else found


def main() -> None:
    try:
        said = answer(json.loads(sys.stdin.buffer.readline()))
    except Exception as error:
        # Without the request, which has a token.
        said = {"error": str(getattr(error, "strerror", None) or error) or type(error).__name__}
    sys.stdout.write("\n" + MARK + json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
