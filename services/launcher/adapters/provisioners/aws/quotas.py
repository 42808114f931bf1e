"""Quotas of EC2 for running instances, counted in virtual processors, by the family of a type of instances."""

from __future__ import annotations

import re

_STANDARD = "acdhimrtz"
_FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "standard": (("L-1216C47A",), ("L-34B43A08",)),
    "g": (("L-DB2E81BA",), ("L-3819A6DF",)),
    "gr": (("L-DB2E81BA",), ("L-3819A6DF",)),
    "vt": (("L-DB2E81BA",), ("L-3819A6DF",)),
    "p": (("L-417A185B",), ("L-7212CCBC",)),
    # Spot requests for P5 had a quota of their own, until those of all P instances became one.
    "p5": (("L-417A185B",), ("L-C4BD4855", "L-7212CCBC")),
    "inf": (("L-1945791B",), ("L-B5D1601B",)),
    "trn": (("L-2C3B7624",), ("L-6B0D517C",)),
    "dl": (("L-6E869C2A",), ("L-85EED4F7",)),
    "x": (("L-7295265B",), ("L-E3A00192",)),
    "f": (("L-74FC7D96",), ("L-88CF9481",)),
    "hpc": (("L-F7808C92",), ()),
    "u": (("L-43DA4232",), ()),
}
"""Codes of Service Quotas, as its list and the user guide of EC2 have them: on demand, and spot. The first that the account has
counts."""


def codes_of(instance_type: str, spot: bool) -> tuple[str, ...]:
    """Empty: not known."""
    match = re.match(r"([a-z]+)(\d*)", instance_type)
    if match is None:
        return ()
    family, generation = match.groups()
    if family not in _FAMILIES and family[0] in _STANDARD and family != "mac":
        family = "standard"
    codes = _FAMILIES.get(family + generation) or _FAMILIES.get(family)
    return codes[spot] if codes else ()
