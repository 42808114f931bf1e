"""Checkpoints and their files."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from tenuto.kernel.storage.stores import NotOurs
from tenuto.kernel.storage.sweep import experiments, sweep
from tenuto.schemas.config.storage import SHARED_STORE, CheckpointStorage, named
from tenuto.services.gateway.http.context import ExperimentFilter, answer, asking
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.paging import Cursor
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.read_models.decision_rows import POINTS_MAX
from tenuto.services.gateway.trials.adapters.downloads import (
    Opened,
    open_checkpoint,
    tar_size_bytes,
    tar_stream,
    verify_checkpoint,
)
from tenuto.services.gateway.trials.adapters.verifying import VerifierBusy
from tenuto.services.gateway.trials.door import Door, TrialsDoor
from tenuto.services.gateway.trials.handling.listing import behind_checkpoint, onward_of_checkpoints
from tenuto.services.gateway.trials.views import CheckpointDetail, CheckpointVerdict, CheckpointView, OrphanView, SweepView

router = APIRouter(tags=["checkpoints"], route_class=StrictRoute)
ORPHAN_SECONDS_MIN = 24 * 3600
"""Least age of unrecorded files that are removed: far longer than an upload takes, and than a worker lives that does not know yet
that it was given up."""


@router.get("/checkpoints", response_model=list[CheckpointView])
async def list_checkpoints(
    request: Request,
    door: Door,
    experiment: ExperimentFilter = None,
    deleted: Annotated[bool, Query(description="Also those that the policy has deleted.")] = False,
    limit: Annotated[int, Query(ge=1, le=POINTS_MAX)] = POINTS_MAX,
    trial: Annotated[str | None, Query(max_length=64)] = None,
    damaged: Annotated[bool, Query(description="Only those that a run could not resume from.")] = False,
    cursor: Cursor = None,
) -> Response:
    rows = await door.views.checkpoints(
        experiment, deleted, limit, trial, damaged, behind=behind_checkpoint(cursor), hidden=door.sight().hidden
    )
    return answer(rows, headers=onward_of_checkpoints(request, rows))


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
        raise DoorError("gone", f"Checkpoint {checkpoint_id} was deleted: {found.delete_reason}")
    read = await run_in_threadpool(open_checkpoint, await _opened(door, found), found.files)
    return StreamingResponse(
        tar_stream(read, found.files),
        media_type="application/x-tar",
        headers={
            "Content-Length": str(tar_size_bytes(found.files)),
            "Content-Disposition": f'attachment; filename="{"".join(c for c in found.id if c.isalnum() or c in "-_")}.tar"',
        },
    )


@router.post("/checkpoints/{checkpoint_id}/verify", response_model=CheckpointVerdict)
async def verify(door: Door, checkpoint_id: str) -> Response:
    """Reads every byte of the checkpoint and compares it with the recorded sizes and SHA-256: one checkpoint at a time per
    user."""
    found = await _checkpoint(door, checkpoint_id)
    if found.deleted_us is not None:
        raise DoorError("gone", f"Checkpoint {checkpoint_id} was deleted: {found.delete_reason}")
    opened = await _opened(door, found)
    try:
        problems = await door.verifier.run(asking(), partial(verify_checkpoint, opened, found.files))
    except VerifierBusy as error:
        raise DoorError("too_many", str(error)) from error
    return answer(
        CheckpointVerdict(
            id=found.id, ok=not problems, problems=tuple(problems), files=len(found.files), size_bytes=found.size_bytes
        )
    )


@router.post("/checkpoints/gc", response_model=SweepView)
async def collect_garbage(
    door: Door,
    dry_run: Annotated[bool, Query(description="Only say what would be removed.")] = True,
    older_than_seconds: Annotated[int, Query(ge=0, le=10**9, description="Keep files younger than this.")] = ORPHAN_SECONDS_MIN,
    experiment: ExperimentFilter = None,
) -> Response:
    """Removes files that were stored but never recorded, and that belong to no live allocation. The tracker does the same every
    hour."""
    used, _ = await experiments(door.log)
    if experiment is not None:
        if experiment not in used:
            raise not_found(f"experiment {experiment}")
        used = {experiment: used[experiment]}
    allocations = {item.trial_id: item.id for item in await door.views.allocations(True, experiment, POINTS_MAX)}
    found = await sweep(
        door.log,
        door.stores,
        used,
        allocations.get,
        door.clock.now_us() - older_than_seconds * 1_000_000,
        dry_run=dry_run,
    )
    orphans = tuple(OrphanView(**vars(item)) for item in found.orphans)
    return answer(SweepView(dry_run=dry_run, orphans=orphans, size_bytes=found.size_bytes, problems=tuple(found.problems)))


async def _opened(door: TrialsDoor, checkpoint: CheckpointDetail) -> Opened:
    """The checkpoint's store, and its id as in the location. Raises DoorError if the location is not one of this checkpoint."""
    config = await door.views.configuration(checkpoint.experiment_id)
    own = SHARED_STORE
    if config is not None:
        own = CheckpointStorage.model_validate(named(config.get("checkpoint_storage", {}))).store
    try:
        store, checkpoint_id = await run_in_threadpool(door.stores.open_location, checkpoint.location, own, checkpoint.trial_id)
    except NotOurs as error:
        raise DoorError("conflict", str(error)) from error
    if checkpoint_id != checkpoint.id:
        raise DoorError("conflict", f"{checkpoint.location} is not the location of checkpoint {checkpoint.id}.")
    return store, checkpoint_id


async def _checkpoint(door: TrialsDoor, checkpoint_id: str) -> CheckpointDetail:
    found = await door.views.checkpoint(checkpoint_id)
    if found is None:
        raise not_found(f"checkpoint {checkpoint_id}")
    return found
