"""A shell ends before its children: else it would write a word of their end into the log of the trial."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tenuto.workers.agent.runtimes.process import processes


def test_what_began_first_is_killed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # A set of these numbers does not keep their order.
    shell, others = 2**16, (2**16 + 7, 2**17, 2**17 + 3, 2**20 + 1, 2**21)
    killed: list[int] = []

    def below(pid: int, known: Collection[int]) -> list[int]:
        return [] if killed else [*others, shell]

    monkeypatch.setattr(processes.orphans, "below", below)
    monkeypatch.setattr(processes, "_is_spared", lambda pid: False)
    monkeypatch.setattr(processes, "kill_process", killed.append)
    processes._kill_below(1)
    assert killed == [shell, *others]
