"""Event payloads are a storage format: one golden line per type and version is read for ever."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event, decode_event, encode_event
from tenuto.schemas.events import EVENT_MODELS, OWNERS, parse
from tenuto.schemas.upcasters import UnreadableVersion

GOLDEN = Path(__file__).parent.parent / "golden" / "events"
OWNER_OF_STREAM = {
    "request": "gateway",
    "notice": "gateway",
    "search": "searcher",
    "pool": "scheduler",
    "run": "launcher",
    "agent": "launcher",
    "node": "launcher",
    "trial": "tracker",
}


def golden_lines() -> list[tuple[str, int, bytes]]:
    found = []
    for path in sorted(GOLDEN.glob("*.json")):
        name, version, _ = path.name.split(".")
        found.append((name, int(version.removeprefix("v")), path.read_bytes().rstrip(b"\n")))
    return found


def test_every_type_and_version_has_a_golden_line() -> None:
    have = {(name, version) for name, version, _ in golden_lines()}
    missing = {
        (name, version)
        for name, model in EVENT_MODELS.items()
        for version in range(1, model.VERSION + 1)
        if (name, version) not in have
    }
    assert not missing, f"add tests/golden/events/<Type>.v<version>.json for {sorted(missing)}"


@pytest.mark.parametrize(("name", "version", "line"), golden_lines(), ids=lambda value: str(value)[:40])
def test_golden_line_is_read_and_written_back(name: str, version: int, line: bytes) -> None:
    data = parse(name, version, line)
    if version == EVENT_MODELS[name].VERSION:
        assert data.to_json() == line
        assert data.stream().startswith(f"{data.STREAM}/")


def test_each_event_type_has_the_one_owner_of_its_stream() -> None:
    for name, model in EVENT_MODELS.items():
        assert OWNERS[name] == OWNER_OF_STREAM[model.STREAM], name


def test_a_newer_version_is_refused_with_a_sentence() -> None:
    with pytest.raises(UnreadableVersion, match=r"TrialRequested version 99 was written by a newer Tenuto"):
        parse("TrialRequested", 99, b"{}")


def test_nan_and_infinity_survive() -> None:
    line = b'{"trial_id":"1-1","allocation_id":"1-1-1","batches":1,"length":1,"metrics":{"a":"NaN","b":"-Infinity"}}'
    data = parse("ValidationReported", 1, line)
    assert data.to_json() == line


events = st.builds(
    Event,
    id=st.uuids(),
    stream=st.text(min_size=1),
    type=st.text(min_size=1),
    schema_version=st.integers(1, 99),
    time_us=st.integers(0, 2**53),
    payload=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda value: json.dumps({"data": value}).encode()),
    actor=st.text(),
    correlation_id=st.text(),
    causation_id=st.none() | st.uuids(),
    seen_position=st.integers(0, 2**53),
    trace=st.text(),
    position=st.integers(0, 2**53),
    version=st.integers(0, 2**53),
)


@given(events)
def test_envelope_keeps_the_payload_byte_for_byte(event: Event) -> None:
    body = encode_event(event)
    assert decode_event(body) == event
    assert json.loads(body)["data"] == json.loads(event.payload)


@given(st.binary(max_size=200))
def test_decoding_garbage_raises_value_error_only(body: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        decode_event(body)


@given(st.text(min_size=1))
def test_log_subject_is_always_one_legal_token(key: str) -> None:
    tokens = subjects.log_subject(f"trial/{key}", "TrialStopped").split(".")
    assert len(tokens) == 5
    assert tokens[4] == "TrialStopped"
    assert not set(tokens[3]) & set("*> \t\r\n")


def test_ids_in_subjects_do_not_collide() -> None:
    assert subjects.log_subject("agent/a.b", "A") != subjects.log_subject("agent/a%2Eb", "A")


def test_event_id_is_derived() -> None:
    from tenuto.schemas.ids import derived_event_id

    cause = UUID(int=7)
    assert derived_event_id("searcher", cause, 0) == derived_event_id("searcher", cause, 0)
    assert len({derived_event_id(c, cause, i) for c in ("searcher", "scheduler") for i in range(3)}) == 6
