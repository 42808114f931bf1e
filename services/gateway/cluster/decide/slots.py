"""Policies of pools, shares of their slots, and slots out of service: for admins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.base import Model
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import PoolPolicyChanged, ShareChanged, SlotsClosed, SlotsOpened
from tenuto.services.gateway.cluster.commands import CloseSlots, OpenSlots, SetPoolPolicy, SetShare
from tenuto.services.gateway.cluster.state import ClusterState
from tenuto.services.gateway.rights.checks import check_admin


def set_pool_policy(state: ClusterState, command: SetPoolPolicy) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    now = {"usage_half_life_hours": state.half_lives.get(command.pool)}
    return [PoolPolicyChanged(pool=command.pool, **_with_what_stays(command.settings, now))]


def set_share(state: ClusterState, command: SetShare) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    share = state.shares.get(f"{command.owner}/{command.name}")
    now = share._asdict() if share is not None else {}
    return [ShareChanged(owner=command.owner, name=command.name, **_with_what_stays(command.settings, now))]


def close_slots(state: ClusterState, command: CloseSlots) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    return [SlotsClosed(agent_id=command.agent_id, **dict(command.closing))]


def open_slots(state: ClusterState, command: OpenSlots) -> Sequence[EventData]:
    check_admin(state, command, "pool.admin")
    return [SlotsOpened(agent_id=command.agent_id, **dict(command.slots))]


def _with_what_stays(settings: Model, now: Mapping[str, float | int | None]) -> dict[str, Any]:
    """The event says all of a share or policy, so that it can be understood alone."""
    given = settings.model_fields_set
    return {name: value if name in given else now.get(name, value) for name, value in settings}


DECISIONS = decisions(set_pool_policy, set_share, close_slots, open_slots)
