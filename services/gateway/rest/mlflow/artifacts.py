"""MLflow's requests about artifacts, by its proxy protocol: the client sends and reads files through this server."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from tenuto.services.gateway.adapters.artifacts import checked_path, children
from tenuto.services.gateway.projections.runs import RunRow
from tenuto.services.gateway.rest.context import Door, Gateway
from tenuto.services.gateway.rest.errors import DoorError
from tenuto.services.gateway.rest.mlflow import answers, bodies
from tenuto.services.gateway.rest.mlflow.access import API, FILES, find_run, run_to_change
from tenuto.services.gateway.rest.mlflow.runs import RunId

router = APIRouter(include_in_schema=False)
FILE = f"{FILES}/{{artifact_path:path}}"
PathQuery = Annotated[str, Query(max_length=1_000)]


def _parted(path: str) -> tuple[str, str]:
    """Run and path of `3/3-1/artifacts/model/weights`, the way on which a client reaches an artifact. Raises DoorError."""
    experiment_id, _, rest = path.strip("/").partition("/")
    run_id, _, rest = rest.partition("/")
    root, _, rest = rest.partition("/")
    if root != "artifacts" or bodies.checked_run(run_id).partition("-")[0] != experiment_id:
        raise DoorError("not_found", f"There is no artifact {path!r}: it is such as 3/3-1/artifacts/model.pt.")
    return run_id, checked_path(rest) if rest else ""


@router.get(FILES)
async def entries(door: Door, path: PathQuery = "") -> Response:
    """Files and directories in a directory; their paths are relative to it."""
    run_id, inside = _parted(path)
    run = await find_run(door, run_id)
    found = await _entries(door, run, inside)
    if len(found) == 1 and found[0]["path"] == inside:
        return answers.answer({"files": [{**found[0], "path": inside.rpartition("/")[2]}]})
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
    return answers.answer({"root_uri": run.artifact_uri, "files": await _entries(door, run, inside)})


async def _entries(door: Gateway, run: RunRow, inside: str) -> list[answers.Json]:
    shown = []
    for path, is_dir, size_bytes in children(await door.artifacts.beneath(run.key, inside), inside):
        shown.append({"path": path, "is_dir": is_dir} | ({} if is_dir else {"file_size": size_bytes}))
    return shown


@router.put(FILE)
async def put(request: Request, door: Door, artifact_path: str) -> Response:
    run_id, path = _parted(artifact_path)
    run = await run_to_change(door, request, run_id)
    if not path:
        raise DoorError("invalid", "The artifact has no name.")
    try:
        await door.artifacts.put(run.key, path, request.stream(), door.clock.now_us(), run.run_user)
    except ClientDisconnect:
        raise DoorError("invalid", f"The client went away in the middle of {path!r}; nothing of it is kept.") from None
    return answers.answer()


@router.get(FILE)
async def get(door: Door, artifact_path: str) -> Response:
    run_id, path = _parted(artifact_path)
    run = await find_run(door, run_id)
    found = [item for item in await door.artifacts.beneath(run.key, path) if item.path == path]
    if not found:
        raise DoorError("not_found", f"Run {run_id} has no artifact {path!r}.")
    # Whoever wrote the file is not trusted by whoever opens the link in a browser: it is saved, never shown.
    headers = {
        "Content-Length": str(found[0].size_bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2])}",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(door.artifacts.read(found[0]), headers=headers, media_type="application/octet-stream")


@router.delete(FILE)
async def delete(request: Request, door: Door, artifact_path: str) -> Response:
    run_id, path = _parted(artifact_path)
    run = await run_to_change(door, request, run_id)
    if not path or not await door.artifacts.delete(run.key, path):
        raise DoorError("not_found", f"Run {run_id} has no artifact {path!r}.")
    return answers.answer()
