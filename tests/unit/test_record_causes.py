"""Likely causes that a differing reproduction names."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenuto.services.gateway.experiments.policies.causes import likely_causes
from tenuto.services.gateway.experiments.policies.likely_effect import ConfigDifference


@dataclass
class Known:
    id: str
    breaks: list[str] = field(default_factory=list)
    allocations: int = 1


DATA = ConfigDifference("data", "train", "a", "b")
NEVER_SEEN = "the order of the records cannot be drawn again"


def test_what_differs_comes_before_what_was_noticed() -> None:
    causes = likely_causes([DATA], Known("1-1", [NEVER_SEEN]), Known("2-1", [NEVER_SEEN]), {})
    assert causes == (
        "data train is another one",
        f"trial 1-1 is not exact: {NEVER_SEEN}",
        f"trial 2-1 is not exact: {NEVER_SEEN}",
    )


def test_a_configuration_that_asks_for_no_exactness_is_named() -> None:
    [cause] = likely_causes([], Known("1-1"), Known("2-1"), {"reproducibility": {"exact": False}})
    assert "reproducibility.exact is false" in cause


def test_where_nothing_is_known_it_says_where_to_look() -> None:
    [cause] = likely_causes([], Known("1-1", allocations=3), Known("2-1"), {"reproducibility": {"exact": True}})
    assert "nothing on record differs" in cause
    assert "trial 1-1 was resumed" in cause
