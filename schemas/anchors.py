"""An anchor: position and hash of the log's last event at some time, signed. Anchors are also kept outside the database, where
a user who can change the log cannot change them."""

from __future__ import annotations

import hmac
from hashlib import sha256

from pydantic import Field

from tenuto.schemas.base import Model

ANCHORS_MAX = 10_000
"""Most anchors compared in one check: a year of hourly ones."""
ANCHORS_SENT_MAX = 4_000
"""Most anchors sent with one request: a JSON body may have a megabyte, and each anchor takes some 220 bytes."""


class Anchor(Model):
    position: int = Field(ge=1)
    """Position of the last event in the log when the anchor was made."""
    hash: str = Field(pattern="^[0-9a-f]{64}$")
    """Hash of that event, in hex; it covers every event before it."""
    time_us: int = Field(ge=0)
    signature: str = Field(pattern="^[0-9a-f]{64}$")
    """HMAC-SHA256 of position, hash and time by the cluster's anchor key, in hex."""


def sign(position: int, hash_: bytes, time_us: int, key: str) -> Anchor:
    return Anchor(position=position, hash=hash_.hex(), time_us=time_us, signature=_signature(position, hash_.hex(), time_us, key))


def is_signed(anchor: Anchor, key: str) -> bool:
    wanted = _signature(anchor.position, anchor.hash, anchor.time_us, key)
    return hmac.compare_digest(wanted, anchor.signature)


def _signature(position: int, hash_: str, time_us: int, key: str) -> str:
    return hmac.new(key.encode(), f"tenuto anchor 1\n{position}\n{hash_}\n{time_us}\n".encode(), sha256).hexdigest()
