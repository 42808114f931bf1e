"""Sealed secrets: those of earlier releases open, theirs would open ours, and nothing that was changed does."""

from __future__ import annotations

import base64

import pytest
from Crypto.Cipher import AES
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.secret_keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES, opened, sealed

KEY = bytes(range(KEY_BYTES))
RECORDED = base64.b64decode("kA42CCtwaQdvEU+mIDHbPcLrSqwa98Hu+/Cq/d+xCnqO+FuZTBhbk+Yn")
"""Sealed by a release that used another library (pycryptodome, which minio brings still)."""


def test_a_recorded_secret_opens() -> None:
    assert opened(KEY, "ada/token", RECORDED) == "grüße, world"


@given(st.text(), st.text(max_size=40))
def test_the_earlier_release_opens_what_is_sealed_now(value: str, about: str) -> None:
    now = sealed(KEY, about, value)
    cipher = AES.new(KEY, AES.MODE_GCM, nonce=now[:NONCE_BYTES])
    cipher.update(about.encode())
    plain = cipher.decrypt_and_verify(now[NONCE_BYTES + TAG_BYTES :], now[NONCE_BYTES : NONCE_BYTES + TAG_BYTES])
    assert plain.decode() == opened(KEY, about, now) == value


@pytest.mark.parametrize("length", range(0, len(RECORDED), 5))
def test_a_part_of_it_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=r"changed|Nonce"):
        opened(KEY, "ada/token", RECORDED[:length])


@pytest.mark.parametrize("place", range(0, len(RECORDED), 3))
def test_a_changed_one_is_refused(place: int) -> None:
    changed = bytes(byte ^ (index == place) for index, byte in enumerate(RECORDED))
    with pytest.raises(ValueError, match=r"changed|Nonce"):
        opened(KEY, "ada/token", changed)


def test_another_name_or_key_does_not_open_it() -> None:
    for key, about in ((KEY, "eve/token"), (KEY[::-1], "ada/token")):
        with pytest.raises(ValueError, match=r"changed|Nonce"):
            opened(key, about, RECORDED)
