"""Seeds of every framework's generators, as functions of the trial's seed."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A number in [0, 2**63) that depends on all arguments; equal on every machine."""
    key = "/".join([str(seed), *(str(part) for part in purpose)])
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
