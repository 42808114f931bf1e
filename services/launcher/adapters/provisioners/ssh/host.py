"""The part that runs on a host: sent there with each request, and read from standard input, so nothing of it is installed there.
Needs Linux, and imports nothing of Tenuto.

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
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

MARK = "TENUTO-ANSWER "
"""Begin of the line with the answer: shells of some accounts print before it."""
LOCK_SECONDS_MAX = 10.0
"""Longest wait for another request at this host."""
REST_SECONDS_MAX = 5.0
"""Time that processes which an agent left behind have to end by themselves."""
LOOK_SECONDS = 0.25
IMPORT_SECONDS_MAX = 30.0
"""Longest time until Python has said the version of Tenuto: network file systems are slow at first."""
KEEP_SECONDS = 7 * 86400.0
"""Time for which a node that has ended is listed, and its log kept."""
LISTED_MAX = 200
LINE_BYTES_MAX = 1000
PASSED = ("HOME", "PATH", "USER", "LOGNAME", "LANG", "LC_ALL", "SHELL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TZ")
"""Variables of the account's session that agents see."""
PR_SET_CHILD_SUBREAPER = 36


def boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def identity(pid: int) -> list[Any]:
    """Number and start of a process: numbers are used again."""
    found = stat_of(pid)
    return [pid, found[19] if found else ""]


def lives(known: list[Any]) -> bool:
    found = stat_of(known[0])
    return bool(found) and found[19] == known[1] and found[0] != "Z"


def below(pid: int) -> list[int]:
    """Processes that descend from this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = stat_of(int(name))
            if stat:
                children.setdefault(int(stat[1]), []).append(int(name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return found


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def write(path: str, value: Any) -> None:
    with open(path + ".new", "w") as file:
        json.dump(value, file)
    os.replace(path + ".new", path)


def load(path: str) -> Any:
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def tail(path: str, lines_max: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - lines_max * LINE_BYTES_MAX))
            lines = file.read(lines_max * LINE_BYTES_MAX).decode(errors="replace").splitlines(True)
    except OSError:
        return ""
    return "".join(lines[-lines_max:])


class Base:
    """Directory of this host: home directories are often common to many. One request at a time."""

    def __init__(self, directory: str) -> None:
        os.umask(0o077)
        self.path = os.path.join(os.path.expanduser(directory), os.uname().nodename)
        self.nodes = os.path.join(self.path, "nodes")
        os.makedirs(self.nodes, mode=0o700, exist_ok=True)
        self.lock = os.open(os.path.join(self.path, "lock"), os.O_CREAT | os.O_RDWR, 0o600)
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"another request holds {self.path}") from None
                time.sleep(0.05)

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
                shutil.rmtree(place, ignore_errors=True)
                continue
            ended = load(os.path.join(place, "ended.json"))
            if ended is None:
                ended = self.end_of(place)
            if ended is not None and ended["at"] < time.time() - KEEP_SECONDS:
                shutil.rmtree(place, ignore_errors=True)
                continue
            stopped = os.path.exists(os.path.join(place, "stopped"))
            node.update(entry=entry, phase="running" if ended is None else "ended")
            node["detail"] = ended["detail"] if ended is not None else "it was told to end" if stopped else ""
            found.append(node)
        found.sort(key=lambda node: (node["phase"] == "ended", -node["at"]))
        return found[:LISTED_MAX]

    def end_of(self, place: str) -> dict[str, Any] | None:
        """How a node ended that nobody saw ending. None: it has not."""
        known = load(os.path.join(place, "process.json"))
        if known is None:
            detail = "its start was cut off"
        elif known["boot"] != boot():
            detail = "the host was started anew"
        elif lives(known["keeper"]) or lives(known["agent"]):
            return None
        else:
            detail = "it was killed"
        ended = {"code": None, "at": time.time(), "detail": detail}
        write(os.path.join(place, "ended.json"), ended)
        shutil.rmtree(os.path.join(place, "agent"), ignore_errors=True)
        return ended


def start(base: Base, asked: dict[str, Any]) -> dict[str, Any]:
    entry = hashlib.sha256("\0".join((asked["cluster"], asked["pool"], asked["node_id"])).encode()).hexdigest()[:20]
    nodes = base.look()
    if any(node["entry"] == entry for node in nodes):
        return {"state": "there"}
    if any(node["phase"] == "running" for node in nodes):
        return {"state": "busy"}
    place = base.place(entry)
    os.makedirs(os.path.join(place, "agent"), mode=0o700)
    node = {name: asked[name] for name in ("cluster", "pool", "node_id")}
    write(os.path.join(place, "node.json"), dict(node, at=time.time()))
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        try:
            os.close(base.lock)
            keep(place, asked, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode(errors="replace")
    if said != "started":
        shutil.rmtree(place, ignore_errors=True)
        raise RuntimeError(said or "the agent cannot be started")
    return {"state": "started"}


def keep(place: str, asked: dict[str, Any], writing: int) -> None:
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
    try:
        agent = subprocess.Popen(asked["command"], env=environment, cwd=place, start_new_session=True)
    except OSError as error:
        os.write(writing, f"{asked['command'][0]}: {error.strerror or error}".encode())
        return
    signal.signal(signal.SIGTERM, lambda *_: send([agent.pid], signal.SIGTERM))
    known = {"boot": boot(), "keeper": identity(os.getpid()), "agent": identity(agent.pid)}
    write(os.path.join(place, "process.json"), dict(known, stop_seconds=asked["stop_seconds"]))
    os.write(writing, b"started")
    os.close(writing)
    code = wait(agent, os.path.join(place, "stopped"), asked["stop_seconds"])
    end_rest()
    words = tail(os.path.join(place, "agent.log"), 1).strip()[:200] if code else ""
    how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    detail = ": ".join(item for item in (how if code else "", words) if item)
    shutil.rmtree(os.path.join(place, "agent"), ignore_errors=True)
    write(os.path.join(place, "ended.json"), {"code": code, "at": time.time(), "detail": detail})
    os._exit(0)


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


def check(asked: dict[str, Any]) -> dict[str, Any]:
    command = [asked["python"], "-c", "import tenuto.version as version; print(version.__version__)"]
    said = subprocess.run(command, capture_output=True, timeout=IMPORT_SECONDS_MAX, cwd="/", check=False)
    words = said.stderr.decode(errors="replace").strip().splitlines()
    return {"version": said.stdout.decode(errors="replace").strip(), "problem": words[-1] if said.returncode and words else ""}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    base = Base(asked["directory"])
    do = asked["do"]
    if do == "start":
        return start(base, asked)
    if do == "stop":
        return stop(base, asked)
    if do == "logs":
        return {"text": tail(os.path.join(base.place(asked["entry"]), "agent.log"), asked["lines_max"])}
    nodes = base.look()
    return dict(check(asked), nodes=nodes) if do == "check" else {"nodes": nodes}


def main() -> None:
    try:
        said = answer(json.loads(sys.stdin.buffer.read()))
    except Exception as error:
        # Without the request, which has a token.
        said = {"error": str(getattr(error, "strerror", None) or error) or type(error).__name__}
    sys.stdout.write("\n" + MARK + json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
