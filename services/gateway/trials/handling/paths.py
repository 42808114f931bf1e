"""Parts of addresses that name a trial."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from tenuto.services.gateway.read_models.common import TRIAL_ID

TrialId = Annotated[str, Path(pattern=f"^{TRIAL_ID.pattern}$")]
