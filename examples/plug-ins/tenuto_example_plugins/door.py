"""The newest experiments as CSV, for spreadsheets: GET /plug-ins/csv/experiments."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from tenuto.services.gateway.experiments.handling.listing import ExperimentQuery
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.http.plugin_doors import DoorPlugin, PluginDoor
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.rights.permissions import READS
from tenuto.services.gateway.views import Views

COLUMNS = ("id", "name", "user", "workspace", "state", "best_metric")
EXPERIMENTS_MAX = 1_000
router = APIRouter()


@dataclass(kw_only=True)
class CsvDoor(PluginDoor):
    views: Views


Door = Annotated[CsvDoor, Depends(door_of(CsvDoor))]


@router.get("/plug-ins/csv/experiments")
async def experiments(door: Door) -> Response:
    """Those that the asker may see."""
    search = ExperimentQuery().search(door.sight().hidden)
    found, _ = await door.views.experiments(search, EXPERIMENTS_MAX)
    table = io.StringIO()
    rows = csv.DictWriter(table, COLUMNS, extrasaction="ignore")
    rows.writeheader()
    rows.writerows(json.loads(body) for body in found)
    return Response(table.getvalue(), media_type="text/csv")


SUBJECT = Subject("csv", {"GET /plug-ins/csv/experiments": READS}, foreign_routers=(router,))
PLUGIN = DoorPlugin(SUBJECT, lambda base, pool: base.with_parts(CsvDoor, views=Views(pool)))
