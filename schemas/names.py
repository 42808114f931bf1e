"""Forms of names that several schemas use."""

from __future__ import annotations

NAME_PATTERN = r"^[A-Za-z0-9_-]{1,63}$"
AGENT_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
