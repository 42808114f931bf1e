"""`pytorch.samplers`: those that Determined's own loader was made of. Here the loader does without."""

from __future__ import annotations

from typing import Any

from tenuto.workers.harness.determined_names import UnknownName


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise UnknownName(
        f"determined.pytorch.samplers has no {name!r} here: give pytorch.DataLoader shuffle=True or a sampler, and Tenuto "
        "repeats, skips and divides its records."
    )
