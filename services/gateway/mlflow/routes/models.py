"""MLflow's requests about logged models: what `log_model` and autologging of MLflow 3 write, and how it is found."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tenuto.services.gateway.http.context import asking
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.mlflow import bodies
from tenuto.services.gateway.mlflow.adapters.files import checked_path
from tenuto.services.gateway.mlflow.door import Door, MlflowDoor
from tenuto.services.gateway.mlflow.handling import answers
from tenuto.services.gateway.mlflow.handling.access import (
    API,
    check_creates,
    experiment_number,
    find_model,
    model_to_change,
    offset_of,
    run_to_change,
)
from tenuto.services.gateway.mlflow.policies.run_filters import OF_MODELS, conditions, orders
from tenuto.services.gateway.mlflow.queries.models import MODELS_MAX, ModelRow
from tenuto.services.gateway.mlflow.routes.artifacts import PathQuery, listed
from tenuto.services.gateway.mlflow.routes.experiments import default_experiment

router = APIRouter(include_in_schema=False)
MODELS = f"{API}/logged-models"
ONE = f"{MODELS}/{{model_id}}"


@router.post(MODELS)
async def create(request: Request, door: Door) -> Response:
    check_creates(door, request)
    body = await bodies.read(request, bodies.CreateModel)
    number = experiment_number(door, body.experiment_id)
    if number is None:
        number = await default_experiment(door)
    if number not in door.state.unmanaged:
        raise DoorError("not_found", f"There is no experiment of unmanaged runs {number}, in which a model could be logged.")
    await door.check_seen(number)
    if body.source_run_id:
        await run_to_change(door, request, body.source_run_id)
    model = await door.run_models.create(
        number, body.name or "", body.model_type, body.source_run_id, asking(), door.clock.now_us()
    )
    pairs = [item.pair for item in body.params], [item.pair for item in body.tags]
    await door.run_data.log((number, -model), parameters=pairs[0], tags=pairs[1])
    return await _told(door, await find_model(door, f"m-{number}-{model}"))


@router.get(ONE)
async def get(door: Door, model_id: str, allow_deleted: bool = False) -> Response:
    return await _told(door, await find_model(door, model_id, deleted=allow_deleted))


async def _told(door: MlflowDoor, found: ModelRow) -> Response:
    details = await door.models.details([found])
    return answers.answer({"model": answers.model(found, details[found.key])})


@router.patch(ONE)
async def finalize(request: Request, door: Door, model_id: str) -> Response:
    body = await bodies.read(request, bodies.FinalizeModel)
    model = await model_to_change(door, request, model_id)
    await door.run_models.change(
        (model.experiment_id, model.number), door.clock.now_us(), status=answers.MODEL_STATES[body.status]
    )
    return await _told(door, await find_model(door, model_id))


@router.delete(ONE)
async def delete(request: Request, door: Door, model_id: str) -> Response:
    """Deletes the model with its files: MLflow's clients have no request that would restore it."""
    model = await model_to_change(door, request, model_id)
    await door.run_models.change((model.experiment_id, model.number), door.clock.now_us(), delete=True)
    await door.artifacts.delete(model.key, "")
    return answers.answer()


@router.post(f"{ONE}/params")
async def log_parameters(request: Request, door: Door, model_id: str) -> Response:
    body = await bodies.read(request, bodies.ModelParameters)
    model = await model_to_change(door, request, model_id)
    await door.run_data.log(model.key, parameters=[item.pair for item in body.params])
    return answers.answer()


@router.patch(f"{ONE}/tags")
async def set_tags(request: Request, door: Door, model_id: str) -> Response:
    body = await bodies.read(request, bodies.ModelTags)
    model = await model_to_change(door, request, model_id)
    await door.run_data.log(model.key, tags=[item.pair for item in body.tags])
    return await _told(door, model)


@router.delete(f"{ONE}/tags/{{tag_key}}")
async def delete_tag(request: Request, door: Door, model_id: str, tag_key: str) -> Response:
    model = await model_to_change(door, request, model_id)
    if not await door.run_data.delete_tag(model.key, tag_key):
        raise DoorError("not_found", f"Logged model {model_id} has no tag {tag_key!r}.")
    return answers.answer()


@router.get(f"{ONE}/artifacts/directories")
async def entries(
    door: Door, model_id: str, artifact_directory_path: PathQuery = "", page_token: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    model = await find_model(door, model_id)
    inside = checked_path(artifact_directory_path) if artifact_directory_path else ""
    return answers.answer({"root_uri": model.artifact_uri, "files": await listed(door, model.key, inside)})


@router.post(f"{MODELS}/search")
async def search(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.SearchModels)
    given = conditions(body.filter, OF_MODELS)
    order = [
        (orders([f"{item.field_name} {'ASC' if item.ascending else 'DESC'}"], OF_MODELS)[0], item.dataset)
        for item in body.order_by
    ]
    numbers = [experiment_number(door, item) for item in body.experiment_ids]
    known = [number for number in numbers if number in door.state.unmanaged]
    limit, offset = min(body.max_results, MODELS_MAX), offset_of(body.page_token)
    hidden = sorted(door.sight().hidden)  # a token that sees nothing was refused before
    datasets = [item.dataset for item in body.datasets]
    found, more = await door.models.search(known, given, order, datasets, limit, offset, hidden)  # type: ignore[arg-type]
    shown = {"models": [answers.model(model, details) for model, details in found]}
    return answers.answer({**shown, "next_page_token": str(offset + len(found))} if more else shown)


@router.post(f"{API}/runs/outputs")
async def log_outputs(request: Request, door: Door) -> Response:
    body = await bodies.read(request, bodies.LogOutputs)
    run = await run_to_change(door, request, body.run_id)
    for item in body.models:
        await find_model(door, item.model_id)
    await door.run_models.use(run.key, [(item.model_id, item.step) for item in body.models], output=True)
    return answers.answer()
