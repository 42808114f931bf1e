"""Checkpoints: what is kept, and its files."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from tenuto.services.gateway.downloads import check_files, directory_of, tar_size_bytes, tar_stream
from tenuto.services.gateway.queries import POINTS_MAX
from tenuto.services.gateway.rest.context import Door, Gateway, answer
from tenuto.services.gateway.rest.errors import DoorError, not_found
from tenuto.services.gateway.views import CheckpointDetail, CheckpointView

router = APIRouter(tags=["checkpoints"])


@router.get("/checkpoints", response_model=list[CheckpointView])
async def list_checkpoints(
    door: Door,
    experiment: int | None = None,
    deleted: Annotated[bool, Query(description="Also those that the policy has deleted.")] = False,
    limit: Annotated[int, Query(ge=1, le=POINTS_MAX)] = POINTS_MAX,
) -> Response:
    return answer(await door.views.checkpoints(experiment, deleted, limit))


@router.get("/checkpoints/{checkpoint_id}", response_model=CheckpointDetail)
async def describe(door: Door, checkpoint_id: str) -> Response:
    return answer(await _checkpoint(door, checkpoint_id))


@router.get(
    "/checkpoints/{checkpoint_id}/download",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-tar": {}}, "description": "The checkpoint's files as a tar stream."}},
)
async def download(door: Door, checkpoint_id: str) -> Response:
    """The files, each checked against its recorded SHA-256 while it is sent; damage cuts the stream before its end."""
    found = await _checkpoint(door, checkpoint_id)
    if found.deleted_us is not None:
        raise DoorError("gone", f"Checkpoint {checkpoint_id} was deleted: {found.delete_reason}.")
    directory = directory_of(found.location)
    await run_in_threadpool(check_files, directory, found.files)
    return StreamingResponse(
        tar_stream(directory, found.files),
        media_type="application/x-tar",
        headers={
            "Content-Length": str(tar_size_bytes(found.files)),
            "Content-Disposition": f'attachment; filename="{"".join(c for c in found.id if c.isalnum() or c in "-_")}.tar"',
        },
    )


async def _checkpoint(door: Gateway, checkpoint_id: str) -> CheckpointDetail:
    found = await door.views.checkpoint(checkpoint_id)
    if found is None:
        raise not_found(f"checkpoint {checkpoint_id}")
    return found
