"""Files of the laptop cluster, and its state. Every command imports this module, so it imports little."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from tenuto.embedded.process import ServerError, explain, no_space
from tenuto.kernel.private_files import keep_as, private, take_back, write_private

DISK_FREE_BYTES_MIN = 256 * 1024 * 1024
"""Least free disk: a new cluster's files take 60 MB, and below this the first experiment would fill the disk."""

CLOSED = 0o700
PASSING = 0o711
"""Mode of a directory that other accounts may pass through, but neither list nor change."""


@dataclass(frozen=True)
class Layout:
    root: Path

    @classmethod
    def of(cls, directory: Path | str | None) -> Layout:
        """Layout of `directory`, else TENUTO_DATA_DIRECTORY, else ~/.tenuto."""
        return cls(Path(directory or os.environ.get("TENUTO_DATA_DIRECTORY") or "~/.tenuto").expanduser().resolve())

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def state(self) -> Path:
        return self.root / "cluster.json"

    @property
    def token(self) -> Path:
        return self.root / "rest.token"

    @property
    def secret_key(self) -> Path:
        """Key of the users' secrets; only services read it."""
        return self.root / "secret.key"

    @property
    def stores(self) -> Path:
        """Declarations of checkpoint stores by the operator, with their credentials."""
        return self.root / "stores.yaml"

    @property
    def rest_port(self) -> Path:
        return self.root / "rest.port"

    @property
    def anchors(self) -> Path:
        """Anchors of the log, which a change of the database alone does not affect."""
        return self.root / "anchors.jsonl"

    @property
    def anchor_key(self) -> Path:
        return self.root / "anchor.key"

    @property
    def tls(self) -> Path:
        """Self-made certificate of REST door and bus, and its key, of a cluster that listens beyond this machine."""
        return self.root / "tls"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def bus_users(self) -> Path:
        """Users of the bus. Outside the bus's own directory, whose loss must not lock out running processes."""
        return self.root / "bus-users"

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    @property
    def agent(self) -> Path:
        return self.root / "agent"

    def log(self, process: str) -> Path:
        return self.root / "logs" / f"{process}.log"

    def create(self) -> None:
        """Makes the directories. Raises ServerError if that fails, or if the disk is nearly full."""
        try:
            self.root.mkdir(mode=CLOSED, parents=True, exist_ok=True)
            for name in ("logs", "shared", "agent", "nats", "bus-users", "postgres", "shared/contexts", "shared/checkpoints"):
                (self.root / name).mkdir(mode=CLOSED, exist_ok=True)
            probe = self.root / f".probe.{os.getpid()}"
            probe.write_bytes(b"x" * 4096)
            probe.unlink()
            free_bytes = shutil.disk_usage(self.root).free
        except OSError as error:
            raise explain(error, self.root) from error
        if free_bytes < DISK_FREE_BYTES_MIN:
            raise ServerError(
                f"{no_space(self.root)[:-1]} (free: {free_bytes >> 20} MB, needed: {DISK_FREE_BYTES_MIN >> 20} MB)."
            )

    def close_to_others(self, *, worker_user: bool, keeper: tuple[int, int] | None = None, agents: int = 1) -> None:
        """Sets the modes of the directories so that other accounts only reach what is theirs: if this is root, PostgreSQL has
        an account of its own, and with `worker_user` workers have one. `keeper`: user and group that the cluster's own files
        belong to, because workers are root, too. Raises OSError."""
        root = os.geteuid() == 0
        passed = [self.shared, *(self.agent_of(number) for number in range(1, agents + 1))]
        closed = [self.root / "logs", self.nats, self.bus_users, self.shared / "contexts"]
        later = [self.provisioners, self.tls, self.shared / "artifacts"]  # services make them when they need them
        if keeper is not None:
            for directory in [*passed, *later]:
                directory.mkdir(mode=CLOSED, exist_ok=True)
            for directory in (self.root, *passed):
                keep_as(directory, *keeper, PASSING)
            for directory in (*closed, *later, self.postgres):
                keep_as(directory, *keeper, CLOSED)
            return
        for directory in (self.root, *passed, *closed, *later, self.postgres):
            if directory.is_dir():
                take_back(directory)
        _set_mode(self.root, PASSING if worker_user or root else CLOSED)
        _set_mode(self.postgres, PASSING if root else CLOSED)
        for directory in (self.shared, self.agent):
            _set_mode(directory, PASSING if worker_user else CLOSED)
        for directory in closed:
            _set_mode(directory, CLOSED)

    def agent_of(self, number: int) -> Path:
        """Directory of one of several agents, from 1."""
        return self.agent if number == 1 else self.agent.with_name(f"agent-{number}")

    @property
    def provisioners(self) -> Path:
        """Directory of the launcher's provisioners."""
        return self.root / "provisioners"

    def can_be_kept(self, keeper: int) -> bool:
        """True if the directory may be given to that account: no other one has it, and not all share it, as they do /tmp."""
        state = self.root.stat()
        return state.st_uid in (os.geteuid(), keeper) and not state.st_mode & stat.S_ISVTX

    @property
    def told_of_accounts(self) -> Path:
        """File that exists once the user was told that workers run as the cluster's own account."""
        return self.root / "worker-user.told"


def _set_mode(directory: Path, mode: int) -> None:
    """Sets the mode, except of a directory that belongs to another user or is shared by all, such as /tmp."""
    state = directory.stat()
    if state.st_uid == os.geteuid() and not state.st_mode & stat.S_ISVTX:
        directory.chmod(mode)


class Lock:
    """A lock file, held while its process lives; the kernel releases it however the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Takes the lock; False if another process holds it. Raises OSError."""
        file = open(self._path, "a", opener=private)  # noqa: SIM115 - it is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file
        return True

    def holder(self) -> int | None:
        """Id of the process that holds the lock, or held it last."""
        try:
            return int(self._path.read_text())
        except (OSError, ValueError):
            return None

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass
class ProcessState:
    pid: int | None = None
    state: str = "starting"
    """starting, running, restarting or stopped."""
    started_us: int = 0
    restarts: int = 0
    message: str = ""
    """Reason of its last end."""


@dataclass
class RunningCluster:
    supervisor_pid: int
    url: str
    token_file: str
    started_us: int
    ready: bool = False
    processes: dict[str, ProcessState] = field(default_factory=dict)

    def write(self, layout: Layout) -> None:
        write_private(layout.state, json.dumps(asdict(self), indent=1) + "\n")


def read_state(layout: Layout) -> RunningCluster | None:
    """State that the supervisor wrote last; the supervisor may have ended since (see `is_up`)."""
    try:
        raw: dict[str, Any] = json.loads(layout.state.read_text())
        raw["processes"] = {name: ProcessState(**item) for name, item in raw["processes"].items()}
        return RunningCluster(**raw)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def is_up(layout: Layout) -> bool:
    """True if a supervisor holds this directory."""
    if not layout.lock.exists():
        return False
    lock = Lock(layout.lock)
    try:
        return not lock.acquire()
    except OSError:
        return False
    finally:
        lock.release()
