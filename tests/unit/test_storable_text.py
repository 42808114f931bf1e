"""Any text of a report can be stored: characters that no database takes become a mark, all others stay the same bytes."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.schemas.config.submission import unprintable_name
from tenuto.schemas.text import NAMES_CHARACTERS_MAX, VALUES_MAX, storable, storable_json, unacceptable, unstorable

TEXTS = st.text(st.sampled_from('\0\ud800\udfff\\"u0abé😀') | st.characters())
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


def texts_of(document: object) -> list[str]:
    if isinstance(document, str):
        return [document]
    if isinstance(document, dict):
        return [*document, *(text for item in document.values() for text in texts_of(item))]
    return [text for item in document for text in texts_of(item)] if isinstance(document, list) else []


@given(DOCUMENTS)
def test_every_text_and_name_can_be_stored(document: object) -> None:
    document = json.loads(json.dumps(document))  # two halves beside each other are one character then
    made = json.loads(storable_json(json.dumps(document).encode()))
    assert not any(unstorable(text) for text in texts_of(made))
    if not any(unstorable(text) for text in texts_of(document)):
        assert made == document


@given(TEXTS)
def test_the_same_of_a_text(text: str) -> None:
    assert not unstorable(storable(text))
    assert len(storable(text)) == len(text)
    assert unstorable(text) or storable(text) == text


@pytest.mark.parametrize("body", [b"", b"{", b'"\\u0000', b"[" * 100_000 + b'"\\u0000"', b'{"a":NaN}', b'"\xf0\x9f\x98\x80"'])
def test_what_is_no_json_or_needs_no_change_stays_as_it_is(body: bytes) -> None:
    assert storable_json(body) == body


@pytest.mark.parametrize("names", [("a" * 500_000,), ("a" * NAMES_CHARACTERS_MAX,), ("a" * 500, "b" * 500)])
def test_a_document_is_judged_in_little_memory_however_long_the_names_above_its_values(names: tuple[str, ...]) -> None:
    document: object = [1] * (VALUES_MAX - 10)
    for name in reversed(names):
        document = {name: document}
    tracemalloc.start()
    try:
        refused = unacceptable(document)
        assert (refused is None) == (sum(map(len, names)) <= NAMES_CHARACTERS_MAX)
        assert isinstance(document, dict)
        assert unprintable_name(document) is None
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 64 << 20


def test_too_many_values_are_refused_before_they_are_looked_at() -> None:
    assert unacceptable([[1] * VALUES_MAX]) == ("[0]", "brings the document to more than the 100000 values that it may have")
    assert unacceptable({"a": {"b" * 300: [1, {"c": 2**63}]}}) == (
        f"a.{'b' * 200}...[1].c",
        "must be an integer of 64 bits: from -2^63 to 2^63 - 1",
    )
    deep = {"a" * 600: {"b" * 401: 1}}
    assert unacceptable(deep) is not None
    assert "is too long: the names down to one value" in unacceptable(deep)[1]  # type: ignore[index]
