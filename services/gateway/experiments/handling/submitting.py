"""Records a submission, once per key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import Response

from tenuto.schemas.config import ExperimentConfig, rungs
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.record import Parent
from tenuto.services.gateway.experiments.bodies import Submitted
from tenuto.services.gateway.experiments.commands import SubmitExperiment
from tenuto.services.gateway.experiments.decide.rule_actions import forked
from tenuto.services.gateway.experiments.door import ExperimentsDoor
from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.rights import workspaces as places
from tenuto.services.gateway.rights.access import workspace_of


def check_place(door: ExperimentsDoor, config: ExperimentConfig) -> None:
    """Checks that the asker may submit there, within the token's limits. Raises Refused."""
    state, subject = door.state, door.subject()
    places.check_place(state, subject, config.resources.workspace, config.project)
    if subject.workspace:  # the forks of its rules are made later, without a token to check
        for rule in config.automation:
            fork = forked(config, rule) if rule.do == "fork" else None
            if fork is not None:
                places.check_place(state, subject, fork.resources.workspace, fork.project)


async def stored_bytes(door: ExperimentsDoor, workspace: str) -> int | None:
    """Bytes of the workspace's checkpoints; None if it has no limit of them."""
    await door.users_known()
    limited = workspace_of(door.state.access, workspace).storage_bytes_max
    return await door.views.stored_bytes(workspace) if limited else None


async def submitted(door: ExperimentsDoor, command: SubmitExperiment, notes: Sequence[str] = ()) -> Response:
    """The recorded experiment, submitted now or earlier with the same key. `notes`: sentences on what was sent. Raises DoorError
    if that was another experiment."""
    stored = await stored_bytes(door, command.config.resources.workspace)
    [event] = await door.carry_out(replace(command, stored_bytes=stored))
    data = event.data
    assert isinstance(data, ExperimentSubmitted)
    # The same text is the same request, whatever a template or default that stands under it says by now.
    same = data.config == command.config or (command.sent_hash and data.sent_hash == command.sent_hash)
    if not same or (data.context_hash, _place(data.parent)) != (command.context_hash, _place(command.parent)):
        raise DoorError(
            "conflict",
            f"This Idempotency-Key was used for experiment {data.experiment_id}, which has another configuration, code or "
            "parent; use a new key for a new experiment.",
            "Idempotency-Key",
        )
    doubts = (*notes, *rungs.doubts(data.config))
    return answer(Submitted(id=data.experiment_id, position=event.position, rungs=rungs.told(data.config), warnings=doubts), 201)


def _place(parent: Parent | None) -> tuple[str, int, str | None] | None:
    return None if parent is None else (parent.relation, parent.experiment_id, parent.trial_id)
