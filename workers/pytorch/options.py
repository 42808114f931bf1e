"""Options of optimizers (learning rate, momentum, weight decay, ...) when a trial begins from another one's checkpoint.

A checkpoint contains the optimizers' options with their state: resuming must be exact, however a schedule or the user's code
changed them. But a copy in population-based training, or a trial that starts from a finished one's weights, has hyperparameters
of its own. So a checkpoint also contains the options that the trial's `__init__` gave. If the new trial's gives another value,
that one is used; everything else goes on as it was saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.optim import Optimizer

Given = list[list[dict[str, Any]]]
"""Options with plain values, by optimizer and parameter group, as `__init__` gave them."""
RATE, INITIAL_RATE = "lr", "initial_lr"
"""Names of the learning rate: a scheduler's constructor stores the given one as `initial_lr`, and may change `lr` at once."""


def given(optimizers: Iterable[Optimizer]) -> Given:
    return [[_plain_options(group) for group in optimizer.param_groups] for optimizer in optimizers]


def _plain_options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if _plain(value)}


def take_over(optimizers: Sequence[Optimizer], schedulers: Iterable[Any], now: Given, then: Given | None) -> list[str]:
    """Adjusts options after the saved state was loaded. `now`: options that this trial's `__init__` gave; `then`: those of the
    checkpoint's trial (None: an older checkpoint without them). Returns the changes, for a message. A learning rate keeps the
    factor by which a schedule had changed it."""
    if then is None or [len(groups) for groups in then] != [len(groups) for groups in now]:
        return []
    changed: list[str] = []
    for optimizer, groups, before in zip(optimizers, now, then, strict=True):
        for group, new, old in zip(optimizer.param_groups, groups, before, strict=False):  # training may have added groups
            changed += _take_over_group(group, new, old)
    for scheduler in _flattened(schedulers):
        if _rates(then, optimizers, scheduler) != _rates(now, optimizers, scheduler):
            scheduler.base_lrs[: len(_rates(now, optimizers, scheduler))] = _rates(now, optimizers, scheduler)
            scheduler._last_lr = [group[RATE] for group in scheduler.optimizer.param_groups]
    return sorted(set(changed))


def _take_over_group(group: dict[str, Any], new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    changed = []
    rate, old_rate = _rate(new), _rate(old)
    if rate != old_rate and isinstance(group.get(RATE), float):
        group[RATE] = rate * (group[RATE] / old_rate) if old_rate else rate
        if INITIAL_RATE in group:
            group[INITIAL_RATE] = rate
        changed.append(f"{RATE} {rate:g}")
    for name, value in new.items():
        if name not in (RATE, INITIAL_RATE) and name in old and value != old[name]:
            group[name] = value
            changed.append(f"{name} {value}")
    return changed


def _rate(options: dict[str, Any]) -> Any:
    return options.get(INITIAL_RATE, options.get(RATE))


def _rates(options: Given, optimizers: Sequence[Optimizer], scheduler: Any) -> list[Any]:
    index = next(index for index, one in enumerate(optimizers) if one is scheduler.optimizer)
    return [_rate(group) for group in options[index]]


def _flattened(schedulers: Iterable[Any]) -> list[Any]:
    """Schedulers with base rates, including those inside others."""
    found = []
    for scheduler in schedulers:
        found += _flattened(getattr(scheduler, "_schedulers", ()))
        if getattr(scheduler, "base_lrs", None) is not None and getattr(scheduler, "optimizer", None) is not None:
            found.append(scheduler)
    return found


def _plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_plain, value))
    return value is None or type(value) in (bool, int, float, str)
