"""Policies of pools, shares of their slots, and slots out of service: for admins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.kernel.core import Refused
from tenuto.schemas.base import Model
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import PoolPolicyChanged, SecretKeyChanged, ShareChanged, SlotsClosed, SlotsOpened
from tenuto.services.gateway.commands import Asked, CloseSlots, NoteSecretKey, OpenSlots, SetPoolPolicy, SetShare
from tenuto.services.gateway.policies.permissions import Rule, refusal
from tenuto.services.gateway.state import State


def set_pool_policy(state: State, command: SetPoolPolicy) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    now = {"usage_half_life_hours": state.half_lives.get(command.pool)}
    return [PoolPolicyChanged(pool=command.pool, **_with_what_stays(command.settings, now))]


def set_share(state: State, command: SetShare) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    share = state.shares.get(f"{command.owner}/{command.name}")
    now = share._asdict() if share is not None else {}
    return [ShareChanged(owner=command.owner, name=command.name, **_with_what_stays(command.settings, now))]


def close_slots(state: State, command: CloseSlots) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    return [SlotsClosed(agent_id=command.agent_id, **dict(command.closing))]


def open_slots(state: State, command: OpenSlots) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    return [SlotsOpened(agent_id=command.agent_id, **dict(command.slots))]


def note_secret_key(state: State, command: NoteSecretKey) -> Sequence[EventData]:
    check_admin(state, command, "upkeep.admin")
    return [SecretKeyChanged(user=command.user, secrets=command.secrets, unreadable=command.unreadable)]


def check_admin(state: State, command: Asked, permission: str) -> None:
    """Whether the user has the permission in the whole cluster. Raises Refused."""
    if why := refusal(state.access, state.subject(command.user), Rule(permission)):
        raise Refused(why, "forbidden")


def _with_what_stays(settings: Model, now: Mapping[str, float | int | None]) -> dict[str, Any]:
    """The event says all of a share or policy, so that it can be understood alone."""
    given = settings.model_fields_set
    return {name: value if name in given else now.get(name, value) for name, value in settings}
