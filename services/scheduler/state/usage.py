"""Use over time, which is forgotten by half in a pool's half-life. In whole numbers, so that every machine counts the same.

Time is cut into steps of an eighth of the half-life. Use counts in full until its step ends; at each step's end all that came
before is multiplied by 2^(-1/8). Decisions look at the last step's end, so that shares change once a step and not all the time.

The factor on a share is 2^(1 - use/entitled), as in Slurm's fair-share factor 2^(-U/S) (Slurm Priority Multifactor plugin).
"""

from __future__ import annotations

from dataclasses import replace

from tenuto.services.scheduler.state import Usage

STEPS_PER_HALF_LIFE = 8
DECAY_65536 = 60097
"""2^(-1/8) in units of 1/65536."""
STEPS_MAX = STEPS_PER_HALF_LIFE * 64
"""Steps of 64 half-lives, after which nothing of 2^64 slot-microseconds is left."""
FACTOR_MIN, FACTOR_MAX = 0.25, 2.0
"""Bounds of the factor on a weight by past use: heavy users keep at least a quarter of it, so that none is shut out."""


def settle(usage: Usage, now_us: int, half_life_us: int) -> Usage:
    """Use up to now. A time before the last one counts as the last one."""
    step_us = max(1, half_life_us // STEPS_PER_HALF_LIFE)
    amount, at_us = usage.amount, usage.at_us
    now_us = max(now_us, at_us)
    for _ in range(STEPS_MAX):
        end_us = (at_us // step_us + 1) * step_us
        if end_us > now_us:
            break
        amount = (amount + usage.slots * (end_us - at_us)) * DECAY_65536 >> 16
        at_us = end_us
    else:
        at_us = now_us // step_us * step_us
    return replace(usage, amount=amount + usage.slots * (now_us - at_us), at_us=now_us)


def at_last_step(usage: Usage, now_us: int, half_life_us: int) -> int:
    """Slot-microseconds as they stood at the end of the last step (or later, if they were settled since)."""
    step_us = max(1, half_life_us // STEPS_PER_HALF_LIFE)
    boundary_us = now_us // step_us * step_us
    return settle(usage, boundary_us, half_life_us).amount if boundary_us > usage.at_us else usage.amount


def factor(used: float, entitled: float) -> float:
    """Factor on the weight of a share: 1 if the owner used what it was entitled to. Both arguments are parts of a whole
    (0..1)."""
    if entitled <= 0:
        return 1.0
    ratio = used / entitled
    # 2^(1 - ratio), by chords between whole ratios: only + and *, which are exact on every machine.
    whole = int(ratio)
    if whole >= 4:
        return FACTOR_MIN
    high = FACTOR_MAX / (1 << whole)
    return max(FACTOR_MIN, high - (ratio - whole) * high / 2)
