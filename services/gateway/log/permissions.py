"""Rights that the routes of the log need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import READS, SEES, UPKEEP, PermissionRule

ROUTES: Mapping[str, PermissionRule] = {
    "GET /api/v1/events": READS,
    "GET /api/v1/events/search": READS,
    "GET /api/v1/events/stream": READS,
    "GET /api/v1/events/{position}/links": READS,
    "GET /api/v1/status": SEES,
    "GET /api/v1/parked": SEES,
    "GET /api/v1/parked/{number}": SEES,
    "POST /api/v1/log/verify": UPKEEP,
    "POST /api/v1/log/anchor": UPKEEP,
    "POST /api/v1/parked/{number}/redeliver": UPKEEP,
    "POST /api/v1/views/rebuild": UPKEEP,
}
