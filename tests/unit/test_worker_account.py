"""Another account for workers that cannot be used: one sentence that says why."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tenuto.embedded import worker_account
from tenuto.embedded.files import Layout
from tenuto.embedded.postgres import server_account
from tenuto.embedded.worker_account import ACCOUNT, WorkerRights, separate_workers, tell_of_accounts, tell_of_rights
from tenuto.kernel import account as account_module
from tenuto.kernel.account import Account, NoAccount, check_account
from tenuto.kernel.confinement import can_confine


def test_an_interpreter_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may start a process as an account, its own included")
    monkeypatch.setattr(account_module, "PROBE_SECONDS_MAX", 0.001)
    monkeypatch.setattr(Account, "can_enter", lambda *_: True)
    with pytest.raises(NoAccount, match="it did not answer within a minute"):
        check_account(Account("worker", os.geteuid(), os.getegid()), tmp_path)


def test_a_full_disk_does_not_end_a_cluster_that_is_told_of_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    touch = Path.touch

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    tell_of_accounts(Layout(tmp_path), "", said.append)
    monkeypatch.setattr(Path, "touch", touch)
    for _ in range(2):
        tell_of_accounts(Layout(tmp_path), "", said.append)
    assert len(said) == 2, "told again, and once it is noted no more"


def _made(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cluster")
    layout.create()
    return layout


class Machine:
    """Accounts of a machine, as `worker_account` sees them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: str = "", has: bool = False) -> None:
        self.has, self._refuses = has, refuses
        self.tried: list[Account] = []
        monkeypatch.delenv("TENUTO_WORKER_CONFINED", raising=False)
        monkeypatch.setattr(worker_account, "find_account", self._find)
        monkeypatch.setattr(worker_account, "check_account", self._check)
        monkeypatch.setattr(worker_account, "_make_account", self._make)

    def _find(self, name: str) -> Account:
        if not self.has:
            raise NoAccount(f"This machine has no user {name}")
        return Account(name, 4711, 4711)

    def _check(self, account: Account, _: Path) -> None:
        self.tried.append(account)
        if self._refuses and not account.confined:
            raise NoAccount(self._refuses)

    def _make(self) -> None:
        self.has = True


of_root = pytest.mark.skipif(not can_confine(), reason="only root chooses")


@of_root
@pytest.mark.parametrize("has", [False, True])
def test_roots_training_code_gets_an_account_that_is_made_if_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: bool
) -> None:
    machine, layout, said = Machine(monkeypatch, has=has), _made(tmp_path), list[str]()
    rights = separate_workers(layout, "")
    assert (rights.user, rights.confined, machine.has) == (ACCOUNT, False, True)
    tell_of_rights(layout, rights, said.append)
    assert said[0].startswith(f"Training code runs as the account {ACCOUNT}, which can read neither")


@of_root
def test_no_account_is_made_that_could_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, layout = Machine(monkeypatch, refuses="it may not enter /root."), _made(tmp_path)
    rights = separate_workers(layout, "")
    assert (rights.user, rights.confined, machine.has) == ("", True, False)
    assert rights.told.endswith("an account of its own cannot be used: it may not enter /root.")
    assert layout.root.owner() == server_account()
    machine._refuses = ""
    assert separate_workers(layout, "").user == ACCOUNT
    assert {path.owner() for path in (layout.root, layout.nats, layout.shared)} == {"root"}, "they are root's again"


@of_root
def test_a_directory_of_all_stays_as_it_is_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, refuses="it may not enter /root.")
    layout = _made(tmp_path)
    layout.root.chmod(0o1777)
    rights = separate_workers(layout, "")
    assert (rights.user, rights.confined, layout.root.owner()) == ("", False, "root")
    assert "can read this cluster's tokens and passwords" in rights.told
    assert "is shared by all: choose a directory of root's with --data-dir" in rights.told


@of_root
def test_a_file_system_without_owners_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, refuses="it may not enter /root.")
    layout = _made(tmp_path)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refused)
    rights = separate_workers(layout, "")
    assert (rights.user, rights.confined) == ("", False)
    assert f"files in {layout.root} cannot be given to another account on that file system." in rights.told
    assert not list(layout.root.glob(".probe*"))


def test_an_ordinary_user_is_told_what_it_was_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, said = _made(tmp_path), list[str]()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    rights = separate_workers(layout, "")
    assert rights == WorkerRights()
    tell_of_rights(layout, rights, said.append)
    assert said[0].startswith("Training code runs as your own account here")
