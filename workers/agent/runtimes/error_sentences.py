"""Sentences for users that several runtimes have in common."""

from __future__ import annotations

_MIB = 1 << 20


def out_of_memory(who: str, limit_bytes: int, setting: str) -> str:
    """Sentence for the user. `who`: subject of the sentence. `limit_bytes`: of the run; 0: it had none, or the node itself
    ran out. `setting`: variable with which the operator gives more."""
    limit = f"its limit of {limit_bytes // _MIB} MiB" if limit_bytes else "all that the node had left"
    return (
        f"{who} ran out of memory: it used {limit}. Use a smaller batch or model, more slots, or an agent that gives "
        f"more memory for each slot ({setting})."
    )
