"""An interpreter that accounts without rights can use, on a machine where it is installed in a closed directory such as /root.

The cluster of the test then runs in a mount namespace of its own, in which the closed directory has nothing in it but what is
needed. Nothing changes for other processes.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tenuto.kernel.account import Account

ROOT = Path(__file__).parents[2]


def way_in(account: Account, directory: Path) -> tuple[str, ...] | None:
    """Prefix of a command that makes the interpreter usable by the account, for the command and its children. Empty: no prefix
    is needed. None: this machine does not allow it. `directory`: an empty directory to use meanwhile."""
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT.resolve()}
    closed = {path: top for path in sorted(needed) if (top := _closed_above(path, account)) is not None}
    if not closed:
        return ()
    lines = ["set -e"]
    for number, path in enumerate(closed):
        lines += [f"mkdir {directory}/{number}", f"mount --bind {shlex.quote(str(path))} {directory}/{number}"]
    lines += [f"mount -t tmpfs -o mode=0755 tmpfs {shlex.quote(str(top))}" for top in sorted({*closed.values()})]
    for number, path in enumerate(closed):
        lines += [f"mkdir -p {shlex.quote(str(path))}", f"mount --bind {directory}/{number} {shlex.quote(str(path))}"]
    inside = ("unshare", "--mount", "--propagation", "private", "sh", "-c", "; ".join([*lines, 'exec "$@"']), "sh")
    try:
        done = subprocess.run([*inside, "true"], capture_output=True, check=False, timeout=60)
    except OSError:
        return None
    for made in directory.iterdir():
        made.rmdir()  # outside, nothing was ever mounted there
    return inside if done.returncode == 0 else None


def _closed_above(path: Path, account: Account) -> Path | None:
    for part in reversed(path.parents):
        if not account.can_enter(part / "x"):
            return part
    return None
