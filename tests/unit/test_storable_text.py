"""What reports say is stored whatever it is: with a mark in place of what no database takes, and else as the very same bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.schemas.text import storable, storable_json, unstorable

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
