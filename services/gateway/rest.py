"""The REST interface as an ASGI application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute

from tenuto.services.gateway.http import errors, reference_page
from tenuto.services.gateway.http.context import Door
from tenuto.services.gateway.http.examples import exemplify
from tenuto.services.gateway.http.gate import Gate
from tenuto.services.gateway.http.origins import allow, origins
from tenuto.services.gateway.http.page import WebPage
from tenuto.services.gateway.http.problems import ErrorView
from tenuto.services.gateway.http.request_metrics import RequestMetrics
from tenuto.services.gateway.http.statuses import declare
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.http.transfer import Transfer
from tenuto.services.gateway.rights.permissions import Permissions, Where
from tenuto.services.gateway.subjects import SUBJECTS, permissions_of

PREFIX = "/api/v1"
API_VERSION = "1.0.0"


def make_app(doors: Mapping[type[Door], Door], subjects: Sequence[Subject], permissions: Permissions) -> FastAPI:
    """`doors`: of `Door` itself, and of each subject's own kind."""
    base = doors[Door]
    app = _routes(subjects)
    app.state.doors, app.state.filling = doors, base.filling
    app.add_middleware(Transfer)
    app.add_middleware(
        Gate,
        gateway=base,
        subjects=subjects,
        permissions=permissions,
        parameters=query_parameters(subjects),
    )
    for subject in subjects:
        for middleware in subject.middleware:
            app.add_middleware(middleware)
    allow(app, origins(base.settings.cors_origins))
    app.add_middleware(WebPage, pages={address: page for subject in subjects for address, page in subject.pages.items()})
    app.add_middleware(RequestMetrics)
    return app


def query_parameters(subjects: Sequence[Subject] = SUBJECTS) -> Mapping[str, frozenset[str]]:
    """Query parameters of each route: those that its function takes, and no others. Not read from the document, which takes a
    second to make, and is asked for by few."""
    ours = [(PREFIX, route) for subject in subjects for router in subject.routers for route in router.routes]
    foreign = [("", route) for subject in subjects for router in subject.foreign_routers for route in router.routes]
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
    return _routes(SUBJECTS).openapi()


def _routes(subjects: Sequence[Subject]) -> FastAPI:
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
    for subject in subjects:
        for router in subject.routers:
            app.include_router(router, prefix=PREFIX, responses=failures)
        for router in subject.foreign_routers:
            app.include_router(router, include_in_schema=False)

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
            permissions = permissions_of(subjects)
            _open(schema, permissions)
            declare(schema, permissions.rules)
            exemplify(schema, PREFIX, subjects)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
    return app


def _operation_id(route: APIRoute) -> str:
    """Function name in generated clients, such as `get_experiment_trials`: the method, and the words of the address, singular
    where one is named."""
    parts = route.path.removeprefix(PREFIX).strip("/").split("/")
    words = [next(iter(sorted(route.methods or ("get",)))).lower()]
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        if not part.startswith("{"):
            word = part.replace("-", "_").replace(".", "_")
            one = word.removesuffix("s") if word.endswith("s") else f"{word}_one"
            words.append(one if after.startswith("{") else word)
    return "_".join(words)


def _open(schema: dict[str, Any], permissions: Permissions) -> None:
    """Says of the routes that need no token that they need none."""
    for route, rule in permissions.rules.items():
        method, _, path = route.partition(" ")
        if rule.where is Where.OPEN and path in schema["paths"]:
            schema["paths"][path][method.lower()]["security"] = []


_DESCRIPTION = (
    "Deep-learning training in which every experiment is an exact, replayable record. Times end in `_us`: microseconds since "
    '1970-01-01 UTC. NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".'
)
