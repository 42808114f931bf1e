"""First process of a container. A file of its own that imports nothing of ours: it is run by the Python of the image, which may
be too old for anything else. So its syntax is that of Python 3.5.

It waits for one line from the agent, with the environment of the worker: neither a token nor a secret is in the container's
description, which lies on the daemon's disk. If the agent dies before, the line never comes, and nothing of the user's runs.
Then it starts the worker, collects orphaned processes, and writes the worker's exit code to a file, so that the
code is known even if no agent was running. With its end the kernel ends all others in the container.

With the argument `agent` it is the first program of an agent that runs in the image as a whole (a pod), and becomes the agent.

With the argument `warm` it has no run yet: it starts the process that has the framework imported and forks the workers of runs
(harness/zygote.py), with the agent's socket as its channel, and stays until neither that process nor the leader of a run is left.
"""

# ruff: noqa: UP031 - Python 3.5 knows no other way that is as short

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any

PYTHON_MIN = (3, 11)
EXIT_WILL_REPEAT = 86
"""tenuto.schemas.events.run.EXIT_CODE_WILL_REPEAT."""
EXITED, KILLED, REFUSED = "exited", "killed", "refused"
"""tenuto.workers.endings."""
HOME = os.path.dirname(os.path.abspath(__file__)) if __name__ == "__main__" else "/tenuto"
WARM_SOCKET = "/tenuto-warm/agent.sock"
"""Socket at which the agent waits for a warm container, and for nothing else."""
ALIVE_VARIABLE = "TENUTO_ALIVE_DESCRIPTOR"
"""tenuto.workers.harness.zygote.ALIVE_VARIABLE."""
SIGNAL_EXIT_BASE = 128


def main() -> int:
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return 0
    job = json.loads(line)
    os.umask(job["umask"])
    problem = job["check"] and unusable(job)
    if problem:
        write(job["error_file"], problem)
        return leave(job, EXIT_WILL_REPEAT, REFUSED)
    reading, writing = os.pipe()  # closed by the worker's exec, and by nothing else without a word
    child = os.fork()
    if child == 0:
        os.close(reading)
        begin(job, writing)
    os.close(writing)
    pass_on()
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    if os.read(reading, 1):
        return leave(job, EXIT_WILL_REPEAT, REFUSED)
    if os.WIFSIGNALED(status):
        return leave(job, SIGNAL_EXIT_BASE + os.WTERMSIG(status), KILLED)
    return leave(job, os.WEXITSTATUS(status), EXITED)


def warm() -> int:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(WARM_SOCKET)
    line = b""
    while not line.endswith(b"\n"):
        piece = channel.recv(65536)
        if not piece:
            return 0
        line += piece
    job = json.loads(line.decode())
    os.umask(job["umask"])
    problem = unusable(job)
    if problem:
        sys.stderr.write(problem + "\n")
        return EXIT_WILL_REPEAT
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.setsid()
            for descriptor in (writing, channel.fileno()):
                os.set_inheritable(descriptor, True)
            environment = surroundings(job["environment"])
            environment[ALIVE_VARIABLE] = str(writing)
            command = job["command"] + [str(channel.fileno())]
            os.execvpe(command[0], command, environment)
        finally:
            os._exit(EXIT_WILL_REPEAT)
    os.close(writing)
    channel.close()
    pass_on()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects orphaned processes
    os.read(reading, 1)
    return 0


def agent(image: str, name: str) -> None:
    """Becomes the agent `name`, with the image's own Python and packages before ours. What is wrong with the image is the last
    line that is printed: the provider of the node shows it."""
    problem = unusable({"image": image})
    if problem:
        sys.exit(problem)
    # The working directory is the image's: its files must not take the place of modules, here and in processes of the agent.
    os.chdir("/")
    command = [sys.executable, "-P", "-m", "tenuto.cli.main", "agent", "run", "--name", name]
    os.execve(sys.executable, command, surroundings({}))


def pass_on() -> None:
    """Has the daemon's SIGTERM (`docker stop`, a node that shuts down) reach the workers, which save and leave. The kernel drops
    it where the first process has no handler for it, and then they are killed ten seconds later."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, frame: to_all(number))


def to_all(number: int) -> None:
    with contextlib.suppress(OSError):  # there is none
        os.kill(-1, number)  # all in the container but this process


def surroundings(added: Any) -> "dict[str, str]":
    """The environment of a process of ours: on top of the image's own."""
    environment = dict(os.environ)
    environment.update(added)
    paths = [HOME + "/own"] + ([environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else [])
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["TENUTO_PACKAGES"] = packages()
    return environment


def leave(job: Any, code: int, how: str) -> int:
    write(job["exit_file"] + ".partial", "%d %s\n" % (code, how))
    os.rename(job["exit_file"] + ".partial", job["exit_file"])
    return code


def begin(job: Any, failed: int) -> None:
    """Turns this process into the worker. `failed`: pipe that gets a byte where that is not possible."""
    try:
        os.setsid()
        output = [os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o660) for name in ("stdout", "stderr")]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output[0], 1)
        os.dup2(output[1], 2)
        reading, writing = os.pipe()
        os.write(writing, job["token"].encode())
        os.close(writing)
        os.set_inheritable(reading, True)
        environment = surroundings(job["environment"])
        environment[job["token_descriptor"]] = str(reading)
        os.chdir(job["directory"])
        os.execvpe(job["command"][0], job["command"], environment)
    except Exception as error:
        write(job["error_file"], "The worker could not be started in the image %s: %s." % (job["image"], error))
    finally:
        os.write(failed, b"f")
        os._exit(EXIT_WILL_REPEAT)


def unusable(job: Any) -> "str | None":
    """Reason why the image cannot run our harness; None if it can."""
    version = "%d.%d" % sys.version_info[:2]
    if sys.version_info < PYTHON_MIN or sys.implementation.name != "cpython":
        return (
            "The image %s has %s %s as its python3, but a trial needs CPython %d.%d or newer: use an image with a newer Python."
            % (job["image"], sys.implementation.name, version, PYTHON_MIN[0], PYTHON_MIN[1])
        )
    ours = os.path.isdir(packages())
    from importlib import metadata

    wrong, missing = [], []
    with open(HOME + "/needed.json") as file:
        needed = json.load(file)
    for name in sorted(needed):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            if not ours:
                missing.append(name + (">=" + needed[name] if needed[name] else ""))
            continue
        if needed[name] and numbers(found) < numbers(needed[name]):
            wrong.append("%s %s (needed: %s or newer)" % (name, found, needed[name]))
    if wrong:
        return "The image %s has packages that are too old for Tenuto: %s. Install newer ones in the image, or remove them." % (
            job["image"],
            ", ".join(wrong),
        )
    if missing:
        return "The agent brings packages for %s, but the image %s has %s: install in the image: pip install %s." % (
            ", ".join(sorted(name[9:] for name in os.listdir(HOME) if name.startswith("packages-"))),
            job["image"],
            platform_name(),
            " ".join("'%s'" % name for name in missing),
        )
    return None


def packages() -> str:
    return "%s/packages-%s" % (HOME, platform_name())


def platform_name() -> str:
    """Name of the packages that fit this Python: compiled ones fit one version, machine and C library."""
    import platform

    libc = platform.libc_ver()[0] or "musl"
    return "python%d.%d-%s-%s" % (sys.version_info[0], sys.version_info[1], platform.machine(), libc)


def numbers(version: str) -> "list[int]":
    """The leading numbers of a version, for a comparison."""
    found = []
    for part in version.split("+")[0].split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        found.append(int(digits))
    return found


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:
        agent(*sys.argv[2:4])
    sys.exit(warm() if sys.argv[1:] == ["warm"] else main())
