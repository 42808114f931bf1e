"""Forms of names that several schemas use."""

from __future__ import annotations

NAME_PATTERN = r"^[A-Za-z0-9_-]{1,63}$"
