"""Runs and experiments that MLflow's requests name, and the right of their sender to change them. Their ids are in bodies, which
the gate does not read: so the right of the route is judged here, by the same table."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from tenuto.schemas.ids import name_id
from tenuto.services.gateway.http.context import asked, asking
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.mlflow import bodies
from tenuto.services.gateway.mlflow.door import MlflowDoor
from tenuto.services.gateway.mlflow.permissions import ROUTES
from tenuto.services.gateway.mlflow.queries.models import ModelRow
from tenuto.services.gateway.mlflow.queries.runs import OFFSET_MAX, RunRow
from tenuto.services.gateway.rights.access import DEFAULT as WORKSPACE
from tenuto.services.gateway.rights.permissions import CHANGES_EXPERIMENT, PermissionRule, refusal

DEFAULT = "Default"
"""Name of the experiment that MLflow's clients log to where none was set; they call it 0."""
API = "/mlflow/api/2.0/mlflow"
FILES = "/mlflow/api/2.0/mlflow-artifacts/artifacts"


def asked_once(door: MlflowDoor, kind: str, key: str) -> dict[str, Any]:
    """Fields of a command. The same Idempotency-Key again gives the same command of this kind."""
    fields = asked(door)
    return {**fields, "id": name_id(kind, asking(), key)} if key else fields


async def find_run(door: MlflowDoor, run_id: str) -> RunRow:
    """Run of that id. Raises DoorError, also for a run in a workspace that the sender does not see."""
    found = await door.runs.run(run_id)
    if found is not None:
        await door.check_seen(found.experiment_id, f"run {run_id}")
        if found.unmanaged and found.experiment_id not in door.state.unmanaged:
            raise DoorError("not_found", f"Experiment {found.experiment_id}, of run {run_id}, is deleted.")
        return found
    experiment_id, _, number = run_id.partition("-")
    known = door.state.unmanaged.get(int(experiment_id))
    if known is not None and 1 <= int(number) <= known.trials:
        raise DoorError("unavailable", f"Run {run_id} is not in the views yet; they are being rebuilt: try again in a moment.")
    raise DoorError("not_found", f"There is no run {run_id}.")


async def run_to_change(door: MlflowDoor, request: Request, run_id: str, *, deleted: bool = False) -> RunRow:
    """An unmanaged run that the sender may change. Raises DoorError. `deleted`: one that was deleted, too."""
    found = await find_run(door, run_id)
    if not found.unmanaged:
        raise DoorError("conflict", f"Run {run_id} is a trial that Tenuto runs: only its workers report about it.")
    owner = door.state.run_owner(found.run_user, found.recorded_us)
    _judge(door, request, owner, f"Run {run_id}", CHANGES_EXPERIMENT)
    if found.deleted and not deleted:
        raise DoorError("conflict", f"Run {run_id} is deleted; restore it first.")
    return found


async def find_model(door: MlflowDoor, model_id: str, *, deleted: bool = False) -> ModelRow:
    """Logged model of that id. Raises DoorError, also for a model in a workspace that the sender does not see. `deleted`: a
    deleted model is returned, too."""
    experiment_id, number = bodies.checked_model(model_id).split("-")[1:]
    found = await door.models.model(int(experiment_id), int(number))
    if found is None or found.experiment_id not in door.state.unmanaged:
        raise DoorError("not_found", f"There is no logged model {model_id}.")
    await door.check_seen(found.experiment_id, f"logged model {model_id}")
    if found.deleted and not deleted:
        raise DoorError("not_found", f"Logged model {model_id} is deleted.")
    return found


async def model_to_change(door: MlflowDoor, request: Request, model_id: str) -> ModelRow:
    """Logged model that the sender may change. Raises DoorError."""
    found = await find_model(door, model_id)
    _judge(door, request, door.state.run_owner(found.user, found.created_us), f"Logged model {model_id}")
    return found


async def experiment_to_change(door: MlflowDoor, request: Request, experiment_id: int) -> int:
    """An experiment of unmanaged runs that the sender may change. Raises DoorError."""
    known = door.state.unmanaged.get(experiment_id)
    if known is None:
        there = 1 <= experiment_id <= door.state.submitted
        why = (
            f"Experiment {experiment_id} is deleted, or one that Tenuto runs; `tenuto exp` changes those."
            if there
            else _none(experiment_id)
        )
        if there:
            await door.check_seen(experiment_id)
        raise DoorError("conflict" if there else "not_found", why)
    await door.check_seen(experiment_id)
    _judge(door, request, door.state.owner(known.user, experiment_id), f"Experiment {experiment_id}")
    return experiment_id


def _judge(door: MlflowDoor, request: Request, owner: str, what: str, rule: PermissionRule | None = None) -> None:
    """Raises DoorError if `rule` does not let the sender do it; None: the rule of the route. A route that creates something gives
    another rule for the items that it names: who may create it may not change all of them."""
    rule = rule or ROUTES[f"{request.method} {request.scope['route'].path}"]
    if why := refusal(door.state.access, door.subject(), rule, workspace=WORKSPACE, owner=owner, what=what):
        raise DoorError("forbidden", why)


def check_creates(door: MlflowDoor, request: Request) -> None:
    """Unmanaged experiments and runs are in the workspace `default`. Raises DoorError."""
    _judge(door, request, "", "")


def no_experiment(experiment_id: int) -> DoorError:
    return DoorError("not_found", _none(experiment_id))


def _none(experiment_id: int) -> str:
    return f"There is no experiment {experiment_id}."


def experiment_number(door: MlflowDoor, given: str) -> int | None:
    """Id of an experiment. None: the default one, which was not created yet."""
    return int(given) or door.state.unmanaged_named(DEFAULT)


def offset_of(page_token: str) -> int:
    """Raises DoorError."""
    if not page_token:
        return 0
    if not page_token.isascii() or not page_token.isdecimal() or len(page_token) > 9 or int(page_token) > OFFSET_MAX:
        raise DoorError("invalid", "page_token is none that this server gave.")
    return int(page_token)
