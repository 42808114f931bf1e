"""Error handling shared by adapters that start a group node by node, for when one of its nodes fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tenuto.services.launcher.adapters.provisioners import ProvisionerError

logger = logging.getLogger(__name__)

_ORDER = {"refused": 0, "quota": 1, "capacity": 2, "unreachable": 3}


def worst(failures: Sequence[BaseException]) -> BaseException:
    """Most telling failure: first one that is no answer of the provider, then one that no later try would change."""
    return min(failures, key=lambda item: _ORDER[item.kind] if isinstance(item, ProvisionerError) else -1)


async def take_back(
    what: str, names: Sequence[str], delete: Callable[[str], Awaitable[None]], expected: tuple[type[Exception], ...]
) -> None:
    """Deletes what was begun of a group; what fails in one of the expected ways is logged, and found by `nodes`. `what`: the word
    for one of them. Raises what else `delete` raises."""
    results = await asyncio.gather(*(delete(name) for name in names), return_exceptions=True)
    for name, result in zip(names, results, strict=True):
        if isinstance(result, expected):
            logger.warning("%s %s of a group that did not start could not be deleted: %s", what, name, result)
        elif isinstance(result, BaseException):
            raise result
