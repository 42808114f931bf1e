"""Simulated days of bursty load on nodes that come and go, judged by the bars that benchmarks/provisioning_days.py measures."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COST_MAX = 1.15
"""Most that nodes may cost, as a part of what somebody would pay who knows the future."""


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_left_nobody_starves_and_little_is_paid_for_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from provisioning_days import measure

    first, *_ = measure(2.0, seed)
    assert first["days"] > 1
    assert first["nodes"] > 10, "they came and went"
    assert (first["orphans"], first["starved"]) == (0, 0)
    assert 1.0 <= first["beside_foreknown"] <= COST_MAX
