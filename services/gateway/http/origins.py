"""Pages of other origins: their scripts may use the door only where the operator names the origin (CORS)."""

from __future__ import annotations

import re

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from tenuto.kernel.settings import SettingsError
from tenuto.services.gateway.http.context import MORE_HEADER
from tenuto.services.gateway.http.paging import TOTAL_HEADER

_ORIGIN = re.compile(r"https?://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SENT = ("Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Tenuto-At-Least")
SHOWN = ("ETag", "Link", "Retry-After", MORE_HEADER, TOTAL_HEADER, "Deprecation", "Sunset")
PREFLIGHT_SECONDS = 600


def origins(text: str) -> tuple[str, ...]:
    """Origins named in the setting. Raises SettingsError."""
    given = tuple(item.strip() for item in text.split(",") if item.strip())
    for origin in given:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f"TENUTO_CORS_ORIGINS names {origin!r}, which is no origin: give addresses such as https://page.example.com, "
                "with commas between, or * for all."
            )
    return given


def allow(app: FastAPI, allowed: tuple[str, ...]) -> None:
    """Adds the outermost middleware, so that refusals can be read, too, and that a preflight needs no token. No cookies: a token
    is sent only by the page that has it."""
    if allowed:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allowed,
            allow_methods=METHODS,
            allow_headers=SENT,
            expose_headers=SHOWN,
            allow_credentials=False,
            max_age=PREFLIGHT_SECONDS,
        )
