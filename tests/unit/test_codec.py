"""Snapshots: what a state's classes declare is stored exactly, and what was not made by them is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from tenuto.cli.replay import cores
from tenuto.kernel.codec import DERIVED, Codec, SnapshotRefused
from tenuto.kernel.core import AnyCore
from tenuto.kernel.replay import fold
from tenuto.schemas.base import Model
from tests.support import histories


class Point(Model):
    x: float
    label: str = ""


class Pair(NamedTuple):
    left: int
    right: str | None


@dataclass(frozen=True)
class Part:
    number: int
    status: Literal["on", "off"] = "off"
    pair: Pair | None = None
    point: Point | None = None
    ends: tuple[tuple[int, float], ...] = ()
    mixed: tuple[str, tuple[int, ...]] = ("", ())
    plan: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Whole:
    parts: Map[int, Part] = field(default_factory=Map)
    points: tuple[Point, ...] = ()
    names: Map[str, bool] = field(default_factory=Map)
    count: int = field(default=0, metadata=DERIVED)


CODEC = Codec(Whole, lambda state: replace(state, count=len(state.parts)))
PARTS = st.builds(
    Part,
    number=st.integers(0, 99),
    status=st.sampled_from(["on", "off"]),
    pair=st.none() | st.builds(Pair, st.integers(), st.none() | st.text(max_size=3)),
    point=st.none() | st.builds(Point, x=st.floats(allow_nan=False), label=st.text(max_size=3)),
    ends=st.lists(st.tuples(st.integers(), st.floats(allow_nan=False)), max_size=2).map(tuple),
    mixed=st.tuples(st.text(max_size=2), st.lists(st.integers(), max_size=2).map(tuple)),
    plan=st.dictionaries(st.text(max_size=2), st.lists(st.integers(), max_size=2), max_size=3),
)


@given(st.lists(PARTS, max_size=4), st.randoms(use_true_random=False))
def test_equal_states_give_equal_bytes_and_come_back(parts: list[Part], random: Any) -> None:
    by_number = {part.number: part for part in parts}
    state = Whole(Map(by_number), tuple(part.point for part in parts if part.point), Map({"b": True, "a": False}), len(by_number))
    data = CODEC.dump(state)
    again = CODEC.load(data)
    assert again == state
    assert CODEC.dump(again) == data
    numbers = list(by_number)
    random.shuffle(numbers)
    assert CODEC.dump(replace(state, parts=Map({number: by_number[number] for number in numbers}))) == data


def test_the_order_of_a_configuration_and_what_is_no_number_survive() -> None:
    plan = {"z": 1, "a": {"y": math.inf, "b": [None, True]}}
    state = Whole(Map({1: Part(1, plan=plan, point=Point(x=math.inf), ends=((1, math.nan),))}), count=1)
    part = CODEC.load(CODEC.dump(state)).parts[1]
    assert list(part.plan) == ["z", "a"]
    assert part.plan == plan
    assert part.point == Point(x=math.inf)
    assert math.isnan(part.ends[0][1])


def test_what_is_not_of_these_classes_is_refused() -> None:
    data = CODEC.dump(Whole(Map({1: Part(1)}), count=1))

    @dataclass(frozen=True)
    class Whole2(Whole):
        new: int = 0

    with pytest.raises(SnapshotRefused, match="another version"):
        Codec(Whole2).load(data)
    for damaged in (data[:-1], data[:40] + b"7" + data[41:], data[:20] + b"\x00" + data[21:]):
        with pytest.raises(SnapshotRefused, match="damaged"):
            CODEC.load(damaged)
    for foreign in (b"", b"{}", b'{"experiments":[]}', b"\x00" * 64):
        with pytest.raises(SnapshotRefused):
            CODEC.load(foreign)


@pytest.mark.parametrize("kind", [set[int], list[int], object, dict[int, int], frozenset[str], bytes])
def test_a_type_that_would_not_come_back_exactly_is_refused_when_the_codec_is_made(kind: Any) -> None:
    made = dataclass(frozen=True)(type("Made", (), {"__annotations__": {"value": kind}, "__module__": __name__}))
    with pytest.raises(TypeError, match="cannot be stored"):
        Codec(made)


@cache
def folded(service: str) -> tuple[AnyCore, Any]:
    """A service's state in the middle of a recorded history, where much is live."""
    core = next(core for core in cores() if core.name == service)
    log = histories.read("searches-2026-11")
    return core, fold(core, log, len(log) // 2)


@pytest.mark.parametrize("service", ["searcher", "scheduler", "launcher", "tracker"])
def test_the_states_of_services_come_back(service: str) -> None:
    core, state = folded(service)
    data = core.dump(state)
    assert len(data) > 200
    again = core.load(data)
    assert again == state
    assert core.dump(again) == data
    core.check(again)
    with pytest.raises(SnapshotRefused):
        core.load(data[:-1])


@pytest.mark.parametrize("service", ["searcher", "scheduler", "launcher", "tracker"])
def test_nothing_of_a_state_is_neither_stored_nor_derived(service: str) -> None:
    """A field with a value of its own, and every derived one, is there again."""
    core, state = folded(service)
    again = core.load(core.dump(state))
    assert is_dataclass(state)
    for item in fields(state):
        assert getattr(again, item.name) == getattr(state, item.name), item.name
