"""Shared parts of the handlers."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg

from tenuto.schemas.envelope import Event

PROJECTION = "views"
"""Name of the projection: of its cursor and its parked events."""
Connection: TypeAlias = asyncpg.Connection
Handler = Callable[[Connection, Event, Any], Awaitable[None]]
TRIAL_ID = re.compile(r"[1-9][0-9]{0,17}-[1-9][0-9]{0,8}")


def numbers(trial_id: str) -> tuple[int, int]:
    """Experiment id and trial number of a trial id."""
    experiment, _, number = trial_id.partition("-")
    return int(experiment), int(number)


def to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
