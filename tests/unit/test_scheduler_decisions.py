"""The decisions of random histories are those that this rule version always made: resizes, victims of quotas, backfill and
lending among them, which recorded histories of real clusters seldom have."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import pytest

from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import PoolPolicyChanged, ShareChanged
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.explain import explain
from tests.support.scheduler_histories import Facts, Step, Wait, history, play
from tests.support.scheduler_promises import Promises

RULE_VERSION = 6
SEEDS = range(1, 11)
DIGESTS = {"priority": "", "fair_share": "", "fifo": ""}
"""Of all that is decided and told under `RULE_VERSION`. Another decision is another rule version: raise it, and write down the
digest that the failure shows. So does a change of the histories themselves, which needs no new version."""
REACHED = {
    "priority": "fits lent backfills preempts shrinks grows reserves quota",
    "fair_share": "fits lent backfills preempts shrinks grows turn",
    "fifo": "fits lent backfills shrinks grows",
}
"""Kinds of decisions that must occur: a digest of histories where nothing happens would say nothing."""
SECOND = 1_000_000


def with_quotas(steps: list[Step], seed: int, policy: str) -> list[Step]:
    """The same history with quotas and weights that change, now and then a half-life, and longer times in between."""
    draw, found = random.Random(f"quotas {seed}"), list(steps)
    for _ in range(14):
        if draw.random() < 0.7:
            owner, name = draw.choice((("user", "x"), ("user", "y"), ("user", "z"), ("workspace", "default")))
            most, weight = draw.choice((2, 3, 4, 6, None)), draw.choice((0.5, 1.0, 2.0))
            changed: EventData = ShareChanged.model_validate({"owner": owner, "name": name, "max_slots": most, "weight": weight})
        else:
            half_life, preempt = draw.choice((0.01, 1.0, None)), draw.random() < 0.3
            changed = PoolPolicyChanged.model_validate(
                {"pool": "default", "policy": policy, "usage_half_life_hours": half_life, "preempt": preempt}
            )
        found.insert(draw.randint(3, len(found)), Facts((changed,)))
    for _ in range(6):
        found.insert(draw.randint(6, len(found)), Wait(draw.choice((60, 600, 1800, 4000)) * SECOND))
    return found


def digest(policy: str) -> tuple[str, Counter[str]]:
    """Of the decisions of all histories, with what was told about the queue after each; and how often each kind occurred."""
    summed, kinds = hashlib.sha256(), Counter[str]()
    for seed in SEEDS:
        steps = history(seed, policy)
        for variant in (steps, with_quotas(steps, seed, policy)):
            driver = play(variant, complete=False)
            for event in driver.log:
                if event.type in SchedulerCore.emits:
                    summed.update(event.payload)
                    reason = getattr(event.data, "reason", None)
                    kinds[reason.rule.rpartition(".")[2]] += 1  # type: ignore[union-attr]
                    kinds["quota"] += "quota_of" in reason.numbers  # type: ignore[union-attr]
                    kinds["turn"] += getattr(event.data, "turn_until_us", None) is not None
            for name in sorted(driver.state.pools):
                for row in explain(driver.state, name, driver.now_us):
                    summed.update(row.model_dump_json(exclude={"text"}).encode())
    return summed.hexdigest(), kinds


@pytest.mark.parametrize("policy", sorted(DIGESTS))
def test_decisions_are_those_of_this_rule_version(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Promises, "hear", lambda self, data: None)  # What must hold in them is judged elsewhere.
    found, kinds = digest(policy)
    missing = [kind for kind in REACHED[policy].split() if not kinds[kind]]
    assert not missing, f"no history has a decision of these kinds: {missing}, only {dict(kinds)}"
    assert (SchedulerCore.rule_version, found) == (RULE_VERSION, DIGESTS[policy])
