"""Conditions on hyperparameters, as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.services.gateway.experiments.policies.conditions import Condition, conditions


def test_what_is_written_is_what_is_meant() -> None:
    assert conditions("") == ()
    assert conditions("lr>=1e-3, lr<0.1,net.layers=3,optimizer=adam,amp=true") == (
        Condition("lr", ">=", 0.001),
        Condition("lr", "<", 0.1),
        Condition("net.layers", "=", 3.0),
        Condition("optimizer", "=", "adam"),
        Condition("amp", "=", "true"),
    )
    assert conditions("x=inf") == (Condition("x", "=", "inf"),), "which JSON has as text"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr", "must be conditions such as"),
        ("lr>adam", "is no number"),
        ("=3", "must be"),
        ("a=1,,b=2", "must be"),
        ("a==1", "must be"),
        ("a=1," * 5 + "a=1", "at most 5"),
    ],
)
def test_what_means_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        conditions(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        found = conditions(text)
    except ValueError as refused:
        found, said = (), str(refused)
        assert said.startswith(("has", "must be", "compares"))
    assert all(item.name for item in found)
