"""Rights of a laptop cluster's workers, and the preparations for them.

An ordinary user's cluster runs training code as its own account, since it cannot do otherwise. Root's does not: workers have an
account of their own, or, where none can use the interpreter and the data directory, they stay root without root's rights over
what belongs to others, and the cluster's files belong to the account that PostgreSQL has.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenuto.embedded.files import CLOSED, Layout
from tenuto.embedded.postgres import server_account
from tenuto.embedded.process import ServerError
from tenuto.kernel.account import Account, NoAccount, check_account, confined_root, find_account
from tenuto.kernel.confinement import can_confine
from tenuto.kernel.private_files import keep_as, kept_bit
from tenuto.kernel.settings import Settings

ACCOUNT = "tenuto-worker"
"""Account of workers of root's cluster, if the operator names none."""
_STRANGER_ID = 65_534
"""User and group of an account that owns nothing: if it can use the interpreter, a new account can, too."""
_MAKE_SECONDS_MAX = 30.0
"""Longest time to make an account: another program may hold the list of accounts for a while."""


@dataclass(frozen=True)
class WorkerRights:
    user: str = ""
    """Account of the workers; empty: the cluster's own."""
    confined: bool = False
    """True: they are root without root's rights over what belongs to others."""
    told: str = ""
    """Sentence for the user of root's cluster. Empty: the workers' account was named, or this is no root."""


def separate_workers(layout: Layout, worker_user: str, agents: int = 1) -> WorkerRights:
    """Closes the cluster's files to its workers, as far as this process can. Raises ServerError, OSError."""
    if worker_user:
        rights = WorkerRights(_named(layout, worker_user).name)
    elif os.geteuid() == 0:
        rights = _of_root(layout)
    else:
        rights = WorkerRights()
    keeper = None
    if rights.confined:
        found = pwd.getpwnam(server_account())
        keeper = found.pw_uid, found.pw_gid
    layout.close_to_others(worker_user=bool(rights.user), keeper=keeper, agents=agents)
    return rights


def _named(layout: Layout, name: str) -> Account:
    """Raises ServerError."""
    _let_through(layout)
    try:
        account = find_account(name)
        if account.name == server_account():
            raise NoAccount(f"Workers cannot run as {account.name}: PostgreSQL runs as that here. Name another account.")
        check_account(account, layout.root)
    except NoAccount as error:
        raise ServerError(str(error)) from error
    return account


def _let_through(layout: Layout) -> None:
    """Lets accounts through to the directories of workers, so that they can be tried. What is kept from root stays so meanwhile:
    workers of an earlier start may run. Raises OSError."""
    if not kept_bit(layout.root):
        layout.close_to_others(worker_user=True)


def _of_root(layout: Layout) -> WorkerRights:
    try:
        if Settings.from_environment().worker_confined:
            raise NoAccount("TENUTO_WORKER_CONFINED is set.")
        _let_through(layout)
        user = _own_account(layout).name
        told = (
            f"Training code runs as the account {user}, which can read neither this cluster's tokens nor root's files, and gets "
            "its model directory read-only; docs/security.md names the other ways."
        )
        return WorkerRights(user, told=told)
    except NoAccount as error:
        why = str(error)
    if problem := _not_confined(layout):
        return WorkerRights(
            told="Training code runs as root here, and whoever you let submit experiments can read this cluster's tokens and "
            f"passwords: {problem} An account of its own for it is the other way: {why}"
        )
    return WorkerRights(
        confined=True,
        told="Training code runs as root without root's rights over other accounts' files, so it cannot read this cluster's "
        f"tokens and passwords, but whatever else is root's; an account of its own cannot be used: {why}",
    )


def _own_account(layout: Layout) -> Account:
    """Account for workers, made if it is missing and could be used. Raises NoAccount."""
    try:
        account = find_account(ACCOUNT)
    except NoAccount:
        check_account(Account(ACCOUNT, _STRANGER_ID, _STRANGER_ID), layout.root)
        _make_account()
        account = find_account(ACCOUNT)
    check_account(account, layout.root)
    return account


def _make_account() -> None:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MAKE_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAccount(
            f"The account {ACCOUNT} cannot be made ({error}): make it, or name another with --worker-user."
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise NoAccount(f"The account {ACCOUNT} cannot be made ({said}): make it, or name another with --worker-user.")


def _not_confined(layout: Layout) -> str:
    """Reason why workers cannot stay root without its rights; empty: they can."""
    if not can_confine():
        return "this process lacks CAP_CHOWN, CAP_DAC_OVERRIDE or CAP_FOWNER, without which it cannot close its files to root."
    try:
        keeper = pwd.getpwnam(server_account())
        if not layout.can_be_kept(keeper.pw_uid):
            return f"{layout.root} belongs to somebody else, or is shared by all: choose a directory of root's with --data-dir."
        if not _can_keep(layout, keeper):
            return f"files in {layout.root} cannot be given to another account on that file system."
        _let_through(layout)
        check_account(confined_root(), layout.root)
    except NoAccount as error:
        return str(error)
    except OSError as error:
        return f"{layout.root} cannot be given to the account {keeper.pw_name} ({error.strerror})."
    return ""


def _can_keep(layout: Layout, keeper: pwd.struct_passwd) -> bool:
    """True if the directory can hold files of the keeper; False if its file system knows no owners, or does not let them be
    changed. Raises OSError."""
    probe = Path(tempfile.mkdtemp(prefix=".probe-", dir=layout.root))
    try:
        keep_as(probe, keeper.pw_uid, keeper.pw_gid, CLOSED)
        return probe.stat().st_uid == keeper.pw_uid and bool(kept_bit(probe))
    except PermissionError:
        return False
    finally:
        probe.rmdir()


def tell_of_rights(layout: Layout, rights: WorkerRights, report: Callable[[str], None]) -> None:
    """Tells the user, when the cluster is up, what training code can reach: root at each start, as that may differ."""
    if rights.told:
        report(rights.told)
    else:
        tell_of_accounts(layout, rights.user, report)


def tell_of_accounts(layout: Layout, worker_user: str, report: Callable[[str], None]) -> None:
    """Tells the user once what it means that workers have no account of their own."""
    if not worker_user and not layout.told_of_accounts.exists():
        report(
            "Training code runs as your own account here: whoever you let submit experiments can read this cluster's tokens and "
            "passwords. `tenuto up --worker-user NAME` (as root) runs it as another account; docs/security.md says more."
        )
        with contextlib.suppress(OSError):  # on a full disk the user is told again next time
            layout.told_of_accounts.touch(mode=0o600)
