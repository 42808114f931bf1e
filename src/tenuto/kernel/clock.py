"""The only source of time, UUIDs and randomness. All other code is given them."""

from __future__ import annotations

import secrets
import time
from typing import Protocol
from uuid import UUID, uuid4


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall time: microseconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds, for measuring durations; never recorded."""
        ...

    def new_id(self) -> UUID: ...

    def new_seed(self) -> int:
        """A number in [0, 2**63)."""
        ...


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self) -> UUID:
        return uuid4()

    def new_seed(self) -> int:
        return secrets.randbits(63)
