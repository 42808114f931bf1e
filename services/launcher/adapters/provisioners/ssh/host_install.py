"""The second of the parts that run on a host (`host.py`): Tenuto's installations, a virtual environment each.

One is ready as soon as its file `NAME.json` names its directory. That file is written last and atomically; everything else, such
as the rest of a build that was killed, is removed by the next build. An agent has its host alone, and so has an installer.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:  # on a host it is the same module
    from tenuto.services.launcher.adapters.provisioners.ssh.host_files import (
        LOOK_SECONDS,
        PASSED,
        PR_SET_PDEATHSIG,
        load,
        write,
    )

PYTHON_MIN = (3, 11)
INSTALL_SECONDS_MAX = 3600.0
"""Longest time of an installation: a framework of gigabytes over a slow line."""
COMMAND_SECONDS_MAX = 60.0
"""Longest time until a Python has answered: network file systems are slow at first."""
UNUSED_KEPT_MAX = 1
"""Most installations that are kept beside the newest: the way back after an upgrade, and the other one of two pools."""
FREE_BYTES_MIN = 500 << 20
"""Least room for an installation, beside three times what was sent for it."""
STALE_SECONDS = 86_400.0
"""Age at which what was sent in part, or for nothing, is removed."""
BLOCK_BYTES = 1 << 20
WORDS_MAX = 300


class InstallFailed(Exception):
    """`str(error)` is the reason, as part of a sentence."""


class Installations:
    def __init__(self, path: str) -> None:
        self.versions, self.files = os.path.join(path, "versions"), os.path.join(path, "files")
        for directory in (self.versions, self.files):
            os.makedirs(directory, mode=0o700, exist_ok=True)

    def python(self, name: str) -> str:
        """Python of the installation; empty if it is not ready."""
        known = load(os.path.join(self.versions, name + ".json"))
        python = os.path.join(self.versions, known["directory"], "bin", "python") if known else ""
        return python if os.path.exists(python) else ""  # false, too, where the Python that it was made of is gone

    def state(self, wanted: dict[str, Any], python: str) -> dict[str, Any]:
        """missing: files that are still to be sent, with the bytes that are here. problem: why it cannot be installed."""
        if self.python(wanted["name"]):
            return {"ready": True, "missing": {}, "problem": ""}
        missing, still = {}, 0
        for file in wanted["files"]:
            if not os.path.exists(self.file(file)):
                missing[file["sha256"]] = size(self.part(file["sha256"]))
                still += file["bytes"] - missing[file["sha256"]]
        free, needed = shutil.disk_usage(self.versions).free, 2 * sum(file["bytes"] for file in wanted["files"]) + still
        problem = unable(python)
        if not problem and free < needed + FREE_BYTES_MIN:
            problem = f"{self.versions} has room for {free >> 20} MB, and about {(needed + FREE_BYTES_MIN) >> 20} MB are needed"
        return {"ready": False, "missing": missing, "problem": problem}

    def file(self, file: dict[str, Any]) -> str:
        return os.path.join(self.files, digest_of(file["sha256"]), os.path.basename(file["name"]))

    def part(self, sha256: str) -> str:
        return os.path.join(self.files, digest_of(sha256) + ".part")

    def put(self, asked: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
        """Takes the rest of a file, or a part of that rest: what has come is kept, and the next request goes on there.
        busy: another request sends it just now."""
        with open(self.part(asked["sha256"]), "ab") as part:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return {"busy": True}
            if part.tell() != asked["offset"]:
                return {"had": part.tell()}
            while block := stream.read(min(BLOCK_BYTES, asked["bytes"] - part.tell() or 1)):
                if part.tell() + len(block) > asked["bytes"]:
                    raise RuntimeError(f"{asked['name']} is longer than was said")
                part.write(block)
            had = part.tell()
            if had == asked["bytes"]:
                part.flush()
                self._complete(asked, part.name)
        return {"had": had}

    def _complete(self, asked: dict[str, Any], part: str) -> None:
        digest = hashlib.sha256()
        with open(part, "rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
        if digest.hexdigest() != asked["sha256"]:
            os.unlink(part)
            raise RuntimeError(f"{asked['name']} arrived with other contents than were sent")
        target = self.file(asked)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        os.replace(part, target)

    def install(self, wanted: dict[str, Any], python: str, environment: dict[str, str], node: str) -> str:
        """Python of the installation, which is made if it is not ready. `node`: directory of the node that needs it, whose log
        gets what the programs print. Raises InstallFailed."""
        if found := self.python(wanted["name"]):
            os.utime(os.path.join(self.versions, wanted["name"] + ".json"))
            return found
        self._tidy(wanted["name"])
        place = tempfile.mkdtemp(prefix=wanted["name"] + ".", dir=self.versions)
        try:
            self._make(wanted, python, place, environment, node)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        write(os.path.join(self.versions, wanted["name"] + ".json"), {"directory": os.path.basename(place), "at": time.time()})
        for file in wanted["files"]:
            shutil.rmtree(os.path.dirname(self.file(file)), ignore_errors=True)
        return self.python(wanted["name"])

    def _make(self, wanted: dict[str, Any], python: str, place: str, environment: dict[str, str], node: str) -> None:
        """Raises InstallFailed."""
        temporary = {"TMPDIR": os.path.join(place, "tmp")}
        run = Programs({**environment, **temporary}, os.path.join(node, "stopped"), os.path.join(node, "agent.log"))
        os.mkdir(os.path.join(place, "tmp"), mode=0o700)
        site = ["--system-site-packages"] if wanted["system_site_packages"] else []
        run(f"{python} makes no virtual environment", python, "-m", "venv", *site, place)
        made = os.path.join(place, "bin", "python")
        if site:
            add_parent(python, place)
        sent = os.path.join(place, "tmp", "files")
        os.mkdir(sent)
        for file in wanted["files"]:
            try:
                os.symlink(self.file(file), os.path.join(sent, os.path.basename(file["name"])))
            except OSError as error:
                raise InstallFailed(f"{file['name']}: {error.strerror}") from None
        options = [item.replace("{files}", sent) for item in wanted["pip"]]
        run("pip does not install it", made, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *options)
        said = subprocess.run(
            [made, "-c", "import tenuto.cli.main, tenuto.version as version; print(version.__version__)"],
            capture_output=True, timeout=COMMAND_SECONDS_MAX, cwd="/", check=False,
        )  # fmt: skip
        if said.returncode:
            raise InstallFailed(f"it cannot be imported: {last(said.stderr)}")
        version = said.stdout.decode(errors="replace").strip()
        if version != wanted["version"]:
            raise InstallFailed(f"pip installed version {version}, and the launcher has {wanted['version']}")
        shutil.rmtree(os.path.join(place, "tmp"), ignore_errors=True)

    def _tidy(self, wanted: str) -> None:
        """Removes what no agent uses: none runs while its successor installs."""
        pointers = [name for name in os.listdir(self.versions) if name.endswith(".json") and name != wanted + ".json"]
        pointers.sort(key=lambda name: -os.path.getmtime(os.path.join(self.versions, name)))
        for name in pointers[UNUSED_KEPT_MAX:]:
            os.unlink(os.path.join(self.versions, name))
        kept = {str(load(os.path.join(self.versions, name))["directory"]) for name in pointers[:UNUSED_KEPT_MAX]}
        for name in os.listdir(self.versions):
            path = os.path.join(self.versions, name)
            if name not in kept and os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
        for name in os.listdir(self.files):
            path = os.path.join(self.files, name)
            with contextlib.suppress(OSError):
                if os.path.getmtime(path) < time.time() - STALE_SECONDS:
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


class Programs:
    """Programs of an installation, which all together have their time, and end with the process that started them."""

    def __init__(self, environment: dict[str, str], stopped: str, log: str) -> None:
        self.environment, self.stopped, self.log = environment, stopped, log
        self.deadline = time.monotonic() + INSTALL_SECONDS_MAX

    def __call__(self, what: str, *command: str) -> None:
        """Runs a command. `what`: beginning of the sentence about its failure. Raises InstallFailed."""
        with open(self.log, "ab") as output:
            before = output.tell()
            with subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment, cwd="/",
                start_new_session=True, preexec_fn=end_with_parent,
            ) as process:  # fmt: skip
                try:
                    code = self._wait(process)
                finally:
                    with contextlib.suppress(OSError):
                        os.killpg(process.pid, signal.SIGKILL)
        if code:
            with open(self.log, "rb") as said:
                said.seek(max(before, size(self.log) - BLOCK_BYTES))
                raise InstallFailed(f"{what}: {last(said.read())}")

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return process.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if os.path.exists(self.stopped):
                    raise InstallFailed("it was told to end") from None
                if time.monotonic() > self.deadline:
                    raise InstallFailed(f"it was not done within {INSTALL_SECONDS_MAX / 60:.0f} min") from None


def end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def pip_environment(given: dict[str, str]) -> dict[str, str]:
    """Variables of an installation: those of the session, and of the agent's the ones that are meant for pip and for proxies."""
    found = {name: os.environ[name] for name in PASSED if name in os.environ}
    meant = {name: value for name, value in given.items() if name.startswith("PIP_") or name.endswith("_PROXY")}
    return {**found, **meant, "PYTHONNOUSERSITE": "1"}


def add_parent(python: str, place: str) -> None:
    """`--system-site-packages` gives a virtual environment the packages of the system, also where it is made by the Python of
    another virtual environment: this adds those of that one."""
    code = "import site, sys; print(sys.prefix == sys.base_prefix); [print(path) for path in site.getsitepackages()]"
    said = subprocess.run([python, "-I", "-c", code], capture_output=True, timeout=COMMAND_SECONDS_MAX, cwd="/", check=False)
    system, *paths = said.stdout.decode().splitlines() or ["True"]
    if system == "False":
        own = os.path.join(place, "lib")
        for name in os.listdir(own):
            with open(os.path.join(own, name, "site-packages", "parent.pth"), "w") as file:
                file.writelines(f"import site; site.addsitedir({path!r})\n" for path in paths)


def unable(python: str) -> str:
    """The reason why nothing can be installed by this Python; empty if there is none."""
    least = ".".join(map(str, PYTHON_MIN))
    code = f"import sys; print(sys.version.split()[0]); sys.version_info >= {PYTHON_MIN!r} or sys.exit(3); import ensurepip, venv"
    try:
        said = subprocess.run([python, "-I", "-c", code], capture_output=True, timeout=COMMAND_SECONDS_MAX, cwd="/", check=False)
    except OSError as error:
        return f"{python}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{python} does not answer"
    version = said.stdout.decode(errors="replace").strip()
    if said.returncode == 3:
        return f"{python} is Python {version}, and Tenuto needs {least} or later: install one, or set python"
    if said.returncode:
        return (
            f"{python} makes no virtual environments ({last(said.stderr)}): install its modules venv and ensurepip, such as"
            " python3-venv of Debian"
        )
    return ""


def digest_of(text: str) -> str:
    if len(text) != 64 or not text.isalnum():
        raise RuntimeError("a file has no digest")
    return text


def size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def last(words: bytes) -> str:
    """Reason of a program's failure: the last line of its output that names an error, else the last line."""
    lines = [line.strip() for line in words.decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    found = next((line for line in errors if "No space left" in line), (errors or lines or ["it said nothing"])[-1])
    return found[:WORDS_MAX].rstrip(".")
