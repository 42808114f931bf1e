"""Files of other libraries in a script's checkpoint, written from a copy while the script goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tenuto.workers.core_api.script_checkpoints import GivenState, open_states

if TYPE_CHECKING:
    from tenuto.workers.core_api.checkpoints import Checkpoints


def write_beside(
    checkpoints: Checkpoints, steps: int, values: Mapping[str, Any], write: Callable[[Mapping[str, Any]], None]
) -> None:
    """Copies the values, and calls `write` with the copy while the script goes on; or with the values at once, where the script
    has to wait. Called within the block of `save`."""
    if checkpoints._states is None:
        checkpoints._states = open_states("save")
    given = GivenState(steps, checkpoints._states, values)
    waits = checkpoints._session.leaves or checkpoints._saves.way(given, checkpoints._writer, optional=False) == "wait"
    if waits:
        write(values)
    else:
        checkpoints._beside.add(given, write)
