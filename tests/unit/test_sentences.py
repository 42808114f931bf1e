"""Every rule that can be recorded has typed numbers and a sentence, and every such class is used; nothing unknown fails."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from tenuto.schemas.events.pool import AgentSlots, AllocationGranted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.sentences import TOLD, amounts, sentence
from tenuto.schemas.sentences.grants import Fits
from tenuto.schemas.sentences.rules import FORMS, Numbers, form_of, rule
from tenuto.schemas.sentences.waiting import QUEUE, Waiting

SERVICES = Path(__file__).parents[2] / "services"
FAKES = SERVICES / "scheduler" / "simulation"
"""Stands for other services, and records for them."""
ABOUT = {
    "trial_id": "3-7", "trial_number": 7, "experiment_id": 3, "allocation_id": "3-7-1", "pool": "default", "target_length": 16,
    "parent_trial_id": "3-1", "best_trial_id": "3-7", "trials": 9, "slots": [{"agent_id": "a", "slot_ids": [0, 1]}],
    "agent_id": "a", "event_type": "TrialFailed",
}  # fmt: skip
FOUND = sorted(((about, name, kind) for (about, name), forms in FORMS.items() for _, kind in forms), key=str)


@pytest.fixture(scope="module")
def parsed() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sorted(SERVICES.rglob("*.py"))]


def test_decisions_are_recorded_by_classes_of_numbers_only(parsed: list[tuple[Path, ast.Module]]) -> None:
    """So no rule is recorded that has none. A reason that is copied keeps its rule."""
    made = [
        f"{path}:{node.lineno}"
        for path, tree in parsed
        if not path.is_relative_to(FAKES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason"
    ]
    assert made == []


def test_every_class_of_numbers_is_recorded_or_told_somewhere(parsed: list[tuple[Path, ast.Module]]) -> None:
    nodes = [node for _, tree in parsed for node in ast.walk(tree) if isinstance(node, ast.Name | ast.ImportFrom)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    aliases = {
        alias.name: alias.asname for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names if alias.asname
    }
    idle = {kind.__name__ for _, _, kind in FOUND if not {kind.__name__, aliases.get(kind.__name__)} & used}
    assert idle == set()


def test_rules_make_no_sentences() -> None:
    """Decisions of pure rooms contain no sentences: numbers and names only."""
    for path in [*(SERVICES / "scheduler" / "policies").glob("*.py"), *(SERVICES / "searcher" / "methods").glob("*.py")]:
        assert "amounts" not in path.read_text(), f"{path} words something"
        assert not (path.parent / "words.py").exists()


@pytest.mark.parametrize(("about", "name", "kind"), FOUND, ids=lambda value: value if isinstance(value, str) else value.__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_numbers_are_said(about: str, name: str, kind: type[Numbers], data: st.DataObject) -> None:
    numbers = data.draw(st.builds(kind, **_fields(kind)))
    recorded = from_json(to_json(numbers.recorded()))
    assert kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in recorded.items()}) == numbers
    if issubclass(kind, Waiting):
        assert about == QUEUE
        assert numbers.sentence(ABOUT)
        return
    reason = numbers.reason(name)
    assert Reason.from_json(reason.to_json()) == reason
    told = sentence(about, {**ABOUT, "reason": from_json(reason.to_json())}, "service/1000000")
    assert told.endswith("."), told
    assert "cannot put into words" not in told
    assert "None" not in told.replace("trial None", ""), told


def _fields(kind: type[Numbers]) -> dict[str, Any]:
    """Small whole numbers and real names; what is set together is."""
    hints, made = get_type_hints(kind), {}
    for item in dataclasses.fields(kind):
        hint = str(hints[item.name])
        if hint.startswith("<class 'int'") or hint == "int | None":
            made[item.name] = st.integers(1, 50)
        elif "float" in hint:
            made[item.name] = st.floats(-1e6, 1e6) if "None" not in hint else st.none() | st.floats(-1e6, 1e6)
        elif hint == "<class 'str'>":
            made[item.name] = st.just("3-1")
        elif hint == "str | None" and item.default is dataclasses.MISSING:  # of any text, one is "None"
            made[item.name] = st.none() | st.just("3-1")
    return made


def test_every_field_says_what_it_is() -> None:
    """By its name, or in words: those that are not plain say it in the class or below the field."""
    for about, name, kind in FOUND:
        assert kind.__doc__, f"{kind.__name__} of {about} {name}"
        for item in dataclasses.fields(kind):
            assert item.name.isidentifier()
            assert item.type, item.name


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            {"rule": "moon.phase", "numbers": {"day": 3}},
            "Decided by rule moon.phase of scheduler/99, which this",
        ),
        ({"rule": "priority.fits", "numbers": {"slots_wanted": 2}}, "Decided by rule priority.fits of scheduler/99"),
        ({"rule": "priority.fits", "numbers": {"colour": "red"}}, "cannot put into words: colour red."),
        ({"rule": "priority.fits"}, "no numbers."),
        ({}, "Decided by rule (none)"),
    ],
)
def test_what_is_not_known_is_said_and_never_fails(reason: dict[str, Any], told: str) -> None:
    found = sentence(AllocationGranted.TYPE, {**ABOUT, "reason": reason}, "scheduler/99")
    assert told in found
    assert found.endswith(".")


def test_events_without_a_reason_have_no_sentence() -> None:
    assert sentence("WorkersStarted", {"agent_ids": ["a"]}, "launcher/1") == ""
    assert sentence(AllocationGranted.TYPE, {}, "scheduler/1") == ""
    assert QUEUE not in TOLD


def test_a_rule_of_another_version_is_said_by_that_version() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Old(Numbers):
        count: int

        def sentence(self, about: Any) -> str:
            return f"old {self.count}."

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class New(Numbers):
        many: int

        def sentence(self, about: Any) -> str:
            return f"new {self.many}."

    key = (AllocationGranted.TYPE, "test.versions")
    try:
        rule(*key)(Old)
        rule(*key, since=7)(New)
        assert sentence(key[0], {"reason": Old(count=1).reason().model_dump()}, "scheduler/6") == "old 1."
        assert sentence(key[0], {"reason": New(many=2).reason().model_dump()}, "scheduler/7") == "new 2."
        assert form_of(*key, 8) is New
    finally:
        FORMS.pop(key, None)


def test_only_what_differs_from_its_default_is_recorded() -> None:
    fits = Fits(priority=42, slots_wanted=2, slots_free=3, experiment_slots_used=0)
    assert json.loads(fits.reason("priority.fits").to_json()) == {
        "rule": "priority.fits",
        "numbers": {"priority": 42, "slots_wanted": 2, "slots_free": 3, "experiment_slots_used": 0},
    }
    with pytest.raises(AssertionError, match="is not recorded as moon"):
        fits.reason("moon")


def test_many_agents_are_counted() -> None:
    slots = [AgentSlots(agent_id=name, slot_ids=(0,)).model_dump() for name in "abcde"]
    told = sentence(
        AllocationGranted.TYPE,
        {**ABOUT, "slots": slots, "reason": {"rule": "resized", "numbers": {"slots_from": 1, "slots_to": 5}}},
        "scheduler/6",
    )
    assert told == "Trial 3-7 was resized and has released its 1 slot; it goes on with 5 slots kept for it."
    assert amounts.are(1) == "1 is"
