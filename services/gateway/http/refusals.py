"""Refusals by the parts that handlers use; the door answers them as they are."""

from __future__ import annotations


class RequestRefused(Exception):
    """`str(error)` is one sentence for the user. `code`: its kind, of `problems.STATUS`."""

    code = "invalid"
