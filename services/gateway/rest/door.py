"""The REST door as an ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Receive, Scope, Send

from tenuto.services.gateway.rest import (
    checkpoints,
    cluster,
    derived,
    errors,
    events,
    experiments,
    jobs,
    operations,
    records,
    trials,
    users,
)
from tenuto.services.gateway.rest.context import ASKING, Gateway
from tenuto.services.gateway.rest.errors import error_response
from tenuto.services.gateway.views import ErrorView

PREFIX = "/api/v1"
API_VERSION = "1.0.0"
OPEN_PATHS = frozenset({"/healthz", f"{PREFIX}/openapi.json"})
"""Answered without a token: they tell nothing of the cluster's contents."""


class RequireToken:
    """Finds out by the bearer token who asks, before a byte of the body is read."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app, self._gateway = app, gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            user = await self._gateway.user_of(header.decode("latin-1"))
            if user is None:
                why = "The token is wrong" if header else "A token is needed"
                message = f"{why}: send your own, or the content of the cluster's token file, as `Authorization: Bearer <token>`."
                await error_response("unauthorized", message)(scope, receive, send)
                return
            ASKING.set(user)
        await self._app(scope, receive, send)


def make_door(gateway: Gateway) -> FastAPI:
    app = _routes()
    app.state.gateway = gateway
    app.add_middleware(RequireToken, gateway=gateway)
    return app


def openapi_document() -> dict[str, Any]:
    """The document in docs/reference/openapi.json."""
    return _routes().openapi()


def _routes() -> FastAPI:
    app = FastAPI(title="Tenuto", version=API_VERSION, openapi_url=f"{PREFIX}/openapi.json", docs_url=None, redoc_url=None)
    errors.install(app)
    failures: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorView}, "5XX": {"model": ErrorView}}
    for module in (experiments, operations, derived, trials, records, checkpoints, events, jobs, users, cluster):
        app.include_router(module.router, prefix=PREFIX, responses=failures)

    @app.get("/healthz", include_in_schema=False)
    async def health() -> dict[str, bool]:
        return {"ok": True}

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_DESCRIPTION)
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            _drop_unused_errors(schema)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
    return app


def _drop_unused_errors(schema: dict[str, Any]) -> None:
    """FastAPI documents its own 422 answer, which this door never gives."""
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)


_DESCRIPTION = (
    "Deep-learning training in which every experiment is an exact, replayable record. Times end in `_us`: microseconds since "
    '1970-01-01 UTC. NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".'
)
