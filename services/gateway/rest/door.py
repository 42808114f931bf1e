"""The REST door as an ASGI application."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute

from tenuto.services.gateway.policies.permissions import ROUTES, Where
from tenuto.services.gateway.rest import errors, reference_page
from tenuto.services.gateway.rest.context import Gateway
from tenuto.services.gateway.rest.examples import exemplify
from tenuto.services.gateway.rest.gate import Gate
from tenuto.services.gateway.rest.measuring import Measured
from tenuto.services.gateway.rest.mlflow import artifacts as mlflow_artifacts
from tenuto.services.gateway.rest.mlflow import experiments as mlflow_experiments
from tenuto.services.gateway.rest.mlflow import models as mlflow_models
from tenuto.services.gateway.rest.mlflow import runs as mlflow_runs
from tenuto.services.gateway.rest.mlflow.errors import MlflowErrors
from tenuto.services.gateway.rest.origins import allow, origins
from tenuto.services.gateway.rest.page import Page
from tenuto.services.gateway.rest.problems import ErrorView
from tenuto.services.gateway.rest.routes import (
    automations,
    checkpoints,
    cluster,
    curves,
    derived,
    descriptions,
    events,
    experiments,
    jobs,
    joining,
    nodes,
    operations,
    page_links,
    pictures,
    records,
    roles,
    secrets,
    sign_in,
    sso,
    stores,
    tables,
    templates,
    trials,
    upkeep,
    users,
    webhooks,
    what_if,
    workspaces,
)
from tenuto.services.gateway.rest.statuses import declare
from tenuto.services.gateway.rest.transfer import Transfer

PREFIX = "/api/v1"
API_VERSION = "1.0.0"
MODULES = (
    experiments,
    descriptions,
    operations,
    derived,
    tables,
    curves,
    trials,
    pictures,
    records,
    checkpoints,
    stores,
    events,
    jobs,
    what_if,
    users,
    sign_in,
    page_links,
    sso,
    roles,
    workspaces,
    templates,
    cluster,
    joining,
    nodes,
    secrets,
    webhooks,
    automations,
    upkeep,
)
MLFLOW_MODULES = (mlflow_experiments, mlflow_runs, mlflow_models, mlflow_artifacts)
"""Routes of MLflow's protocol. MLflow's own documents are their contract, so they are not in ours."""


def make_door(gateway: Gateway) -> FastAPI:
    app = _routes()
    app.state.gateway = gateway
    app.add_middleware(Transfer)
    app.add_middleware(Gate, gateway=gateway, parameters=query_parameters())
    app.add_middleware(MlflowErrors)
    allow(app, origins(gateway.settings.cors_origins))
    app.add_middleware(Page)
    app.add_middleware(Measured)
    return app


@cache
def query_parameters() -> Mapping[str, frozenset[str]]:
    """Query parameters of each route: those that its function takes, and no others. Not read from the document, which takes a
    second to make, and is asked for by few."""
    ours = [(PREFIX, route) for module in MODULES for route in module.router.routes]
    foreign = [("", route) for module in MLFLOW_MODULES for route in module.router.routes]
    found: dict[str, frozenset[str]] = {}
    for prefix, route in ours + foreign:
        assert isinstance(route, APIRoute)
        query = Dependant(query_params=_in_query(route.dependant))
        names = frozenset(field.alias for field in get_flat_params(query))
        found |= {f"{method} {prefix}{route.path_format}": names for method in route.methods or ()}
    return found


def _in_query(dependant: Dependant) -> list[Any]:
    """Parameters of a function and of those that it depends on; a model stands for its fields."""
    return [*dependant.query_params, *(field for part in dependant.dependencies for field in _in_query(part))]


def openapi_document() -> dict[str, Any]:
    """The document in docs/reference/openapi.json."""
    return _routes().openapi()


def _routes() -> FastAPI:
    app = FastAPI(
        title="Tenuto",
        version=API_VERSION,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
    )
    errors.install(app)
    failures: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorView}}  # so that the document has the model
    for module in MODULES:
        app.include_router(module.router, prefix=PREFIX, responses=failures)

    for module in MLFLOW_MODULES:
        app.include_router(module.router)

    @app.get("/healthz", include_in_schema=False)
    async def health() -> dict[str, bool]:
        return {"ok": True}

    @app.get(f"{PREFIX}/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(reference_page.page(app.openapi()), headers=reference_page.HEADERS)

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_DESCRIPTION)
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            _open(schema)
            declare(schema)
            exemplify(schema, PREFIX)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
    return app


def _operation_id(route: APIRoute) -> str:
    """What generated clients call their functions, such as `get_experiment_trials`: the method, and the words of the address,
    singular where one is named."""
    parts = route.path.removeprefix(PREFIX).strip("/").split("/")
    words = [next(iter(sorted(route.methods or ("get",)))).lower()]
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        if not part.startswith("{"):
            word = part.replace("-", "_").replace(".", "_")
            one = word.removesuffix("s") if word.endswith("s") else f"{word}_one"
            words.append(one if after.startswith("{") else word)
    return "_".join(words)


def _open(schema: dict[str, Any]) -> None:
    """Says of the routes that need no token that they need none."""
    for route, rule in ROUTES.items():
        method, _, path = route.partition(" ")
        if rule.where is Where.OPEN and path in schema["paths"]:
            schema["paths"][path][method.lower()]["security"] = []


_DESCRIPTION = (
    "Deep-learning training in which every experiment is an exact, replayable record. Times end in `_us`: microseconds since "
    '1970-01-01 UTC. NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".'
)
