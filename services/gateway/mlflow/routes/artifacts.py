"""MLflow's requests about artifacts, by its proxy protocol: the client sends and reads files through this server."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.mlflow import bodies
from tenuto.services.gateway.mlflow.adapters.files import checked_path, children
from tenuto.services.gateway.mlflow.door import Door, MlflowDoor
from tenuto.services.gateway.mlflow.handling import answers
from tenuto.services.gateway.mlflow.handling.access import API, FILES, find_model, find_run, model_to_change, run_to_change
from tenuto.services.gateway.mlflow.routes.runs import RunId

router = APIRouter(include_in_schema=False)
FILE = f"{FILES}/{{artifact_path:path}}"
PathQuery = Annotated[str, Query(max_length=1_000)]
Key = tuple[int, int]
"""Key of a run or a logged model in the tables that they share."""


def _parted(path: str) -> tuple[str, bool, str]:
    """(run or logged model, whether it is a model, path of the artifact in it) of `3/3-1/artifacts/model/weights` or of
    `3/models/m-3-1/artifacts/weights`, the ways on which a client reaches an artifact. Raises DoorError."""
    experiment_id, _, rest = path.strip("/").partition("/")
    of_model = rest.startswith("models/")
    item_id, _, rest = rest.removeprefix("models/").partition("/")
    root, _, rest = rest.partition("/")
    checked = bodies.checked_model(item_id).removeprefix("m-") if of_model else bodies.checked_run(item_id)
    if root != "artifacts" or checked.partition("-")[0] != experiment_id:
        raise DoorError("not_found", f"There is no artifact {path!r}: it is such as 3/3-1/artifacts/model.pt.")
    return item_id, of_model, checked_path(rest) if rest else ""


async def _key(door: MlflowDoor, item_id: str, of_model: bool) -> Key:
    """Raises DoorError."""
    return (await find_model(door, item_id)).key if of_model else (await find_run(door, item_id)).key


async def _to_change(door: MlflowDoor, request: Request, item_id: str, of_model: bool) -> tuple[Key, str]:
    """Key of an item that the sender may change, and the user whose limit its files count against. Raises DoorError."""
    if of_model:
        model = await model_to_change(door, request, item_id)
        return model.key, model.user
    run = await run_to_change(door, request, item_id)
    return run.key, run.run_user


@router.get(FILES)
async def entries(door: Door, path: PathQuery = "") -> Response:
    """Files and directories in a directory; their paths are relative to it. There are none in a file: whatever is listed makes
    clients take the path for a directory."""
    item_id, of_model, inside = _parted(path)
    found = await listed(door, await _key(door, item_id, of_model), inside)
    return answers.answer({"files": [{**item, "path": item["path"].rpartition("/")[2]} for item in found]})


@router.get(f"{API}/artifacts/list")
async def entries_of_run(
    door: Door,
    run_id: RunId = "",
    run_uuid: RunId = "",
    path: PathQuery = "",
    page_token: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    run = await find_run(door, bodies.checked_run(run_id or run_uuid))
    inside = checked_path(path) if path else ""
    return answers.answer({"root_uri": run.artifact_uri, "files": await listed(door, run.key, inside)})


async def listed(door: MlflowDoor, key: Key, inside: str) -> list[answers.Json]:
    """Entries of a directory of artifacts, in MLflow's form; none of a file."""
    shown = []
    for path, is_dir, size_bytes in children(await door.artifacts.beneath(key, inside), inside):
        if path == inside:
            continue
        shown.append({"path": path, "is_dir": is_dir} | ({} if is_dir else {"file_size": size_bytes}))
    return shown


@router.put(FILE)
async def put(request: Request, door: Door, artifact_path: str) -> Response:
    item_id, of_model, path = _parted(artifact_path)
    key, user = await _to_change(door, request, item_id, of_model)
    if not path:
        raise DoorError("invalid", "The artifact has no name.")
    try:
        await door.artifacts.put(key, path, request.stream(), door.clock.now_us(), user)
    except ClientDisconnect:
        raise DoorError("invalid", f"The client went away in the middle of {path!r}; nothing of it is kept.") from None
    return answers.answer()


@router.get(FILE)
async def get(door: Door, artifact_path: str) -> Response:
    item_id, of_model, path = _parted(artifact_path)
    key = await _key(door, item_id, of_model)
    found = [item for item in await door.artifacts.beneath(key, path) if item.path == path]
    if not found:
        raise _none(item_id, of_model, path)
    # The user who opens the link in a browser need not trust the author of the file: it is saved, never shown.
    headers = {
        "Content-Length": str(found[0].size_bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2])}",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(door.artifacts.read(found[0]), headers=headers, media_type="application/octet-stream")


@router.delete(FILE)
async def delete(request: Request, door: Door, artifact_path: str) -> Response:
    item_id, of_model, path = _parted(artifact_path)
    key, _ = await _to_change(door, request, item_id, of_model)
    if not path or not await door.artifacts.delete(key, path):
        raise _none(item_id, of_model, path)
    return answers.answer()


def _none(item_id: str, of_model: bool, path: str) -> DoorError:
    return DoorError("not_found", f"{'Logged model' if of_model else 'Run'} {item_id} has no artifact {path!r}.")
