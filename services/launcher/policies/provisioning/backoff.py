"""Time until nodes of a type are asked for again, after they could not be had or were of no use. Pure."""

from __future__ import annotations

from tenuto.services.launcher.state.nodes import ProvisionedPool

FIRST_SECONDS = 30.0
"""Pause after the first failure in a row: about two looks, so a short shortage costs little."""
REFUSED_SECONDS = 300.0
"""Pause after the first failure if the provider rejects the request: only a person can mend that, and changed settings end the
wait at once."""
SECONDS_MAX = 1_800.0
"""Longest pause: capacity that comes back is noticed within half an hour, and a provider without any gets two orders an hour."""
_DOUBLINGS_MAX = 20
"""Most doublings that are computed: the bound above is reached long before."""


def backoff_seconds(failures: int, *, refused: bool = False) -> float:
    """Pause after `failures` failures in a row: doubled with each, up to the bound."""
    first = REFUSED_SECONDS if refused else FIRST_SECONDS
    return min(SECONDS_MAX, first * 2.0 ** min(max(0, failures - 1), _DOUBLINGS_MAX))


def next_try(pool: ProvisionedPool, node_type: str, now_us: int, *, refused: bool = False) -> tuple[int, int]:
    """(failures in a row with this one, time of the next try). Nodes that fail while their type is not asked for belong to the
    attempt that failed already."""
    before = pool.backoffs.get(node_type)
    if before is not None and before.until_us > now_us:
        return before.failures, before.until_us
    failures = (before.failures if before is not None else 0) + 1
    return failures, now_us + round(backoff_seconds(failures, refused=refused) * 1e6)


def waits(pool: ProvisionedPool, node_type: str, now_us: int) -> bool:
    """True if nodes of the type are not asked for now."""
    backoff = pool.backoffs.get(node_type)
    return backoff is not None and backoff.until_us > now_us
