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
from tests.support.scheduler_driver import requested, submitted
from tests.support.scheduler_histories import End, Facts, Step, Wait, history, play
from tests.support.scheduler_promises import Promises

RULE_VERSION = 9
SEEDS = range(1, 11)
DIGESTS = {
    "priority": "6f03457fffeb97bdcd071fc41cb1684ce31b80e3d4407977d22b426d538494e5",
    "fair_share": "d55e4706841d5fc3f24ab7abbd1b44215607cf511af003083f0e1dd82d5a7f33",
    "fifo": "6b7fbe85df495d4c87dc6fc4aba3a2236a2b0d34bffcea98c39ca152cfe3d86b",
}
"""Of all that is decided and told under `RULE_VERSION`. Another decision is another rule version: raise it, and write down the
digest that the failure shows. So does a change of the histories themselves, which needs no new version."""
REACHED = {
    "priority": "fits lent backfills preempts shrinks grows reserves quota",
    "fair_share": "fits lent preempts shrinks grows turn",
    "fifo": "fits lent backfills shrinks grows",
}
"""Kinds of decisions that must occur: a digest of histories where nothing happens would say nothing."""
SECOND = 1_000_000
FORETOLD = 50
"""Numbers of experiments that say how long they run begin here."""


def varied(steps: list[Step], seed: int, policy: str) -> list[Step]:
    """The same history with quotas and weights that change, now and then a half-life, longer times in between, and more trials
    that end, and say how long they run."""
    draw, found = random.Random(f"varied {seed}"), list(steps)
    for _ in range(14):
        if draw.random() < 0.7:
            owner, name = draw.choice((("user", "x"), ("user", "y"), ("user", "z"), ("workspace", "default")))
            most, weight = draw.choice((4, 6, 8, None, None, None)), draw.choice((0.5, 1.0, 2.0))
            changed: EventData = ShareChanged.model_validate({"owner": owner, "name": name, "max_slots": most, "weight": weight})
        else:
            half_life, preempt = draw.choice((0.01, 1.0, None)), draw.random() < 0.3
            changed = PoolPolicyChanged.model_validate(
                {"pool": "default", "policy": policy, "usage_half_life_hours": half_life, "preempt": preempt}
            )
        found.insert(draw.randint(3, len(found)), Facts((changed,)))
    for number in range(FORETOLD, FORETOLD + 8):
        slots, expected = draw.choice((1, 1, 1, 2, 4, 6)), draw.choice((30, 300, 3000, 30_000))
        asked = {"user": draw.choice("xyz"), "priority": draw.choice((10, 42, 60)), "preemptible": draw.random() < 0.6}
        arrival = (submitted(number, slots=slots, expected=expected, **asked), *requested(number, 1, 2))  # type: ignore[arg-type]
        found.insert(draw.randint(6, len(found)), Facts(arrival))
    for _ in range(30):
        found.insert(draw.randint(6, len(found)), End(draw.random()))
    for _ in range(6):
        found.insert(draw.randint(6, len(found)), Wait(draw.choice((60, 600, 1800, 4000)) * SECOND))
    return found


def digest(policy: str) -> tuple[str, Counter[str]]:
    """Of the decisions of all histories, with what was told about the queue after each; and how often each kind occurred."""
    summed, kinds = hashlib.sha256(), Counter[str]()
    for seed in SEEDS:
        steps = history(seed, policy)
        for variant in (steps, varied(steps, seed, policy)):
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
