"""Another account for workers that cannot be used: one sentence that says why."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tenuto.embedded.files import Layout
from tenuto.embedded.worker_account import tell_of_accounts
from tenuto.kernel import account as account_module
from tenuto.kernel.account import Account, NoAccount, check_account


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
