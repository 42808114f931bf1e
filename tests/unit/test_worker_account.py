"""Another account for workers that cannot be used: one sentence that says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenuto.kernel import account as account_module
from tenuto.kernel.account import Account, NoAccount, check_account


def test_an_interpreter_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may start a process as an account, its own included")
    monkeypatch.setattr(account_module, "PROBE_SECONDS_MAX", 0.001)
    monkeypatch.setattr(Account, "can_enter", lambda *_: True)
    with pytest.raises(NoAccount, match="it did not answer within a minute"):
        check_account(Account("worker", os.geteuid(), os.getegid()), tmp_path)
