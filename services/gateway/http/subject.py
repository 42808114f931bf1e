"""Parts that a subject brings to the door."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response
from starlette.types import ASGIApp

from tenuto.kernel.settings import Settings
from tenuto.services.gateway.rights.permissions import PermissionRule


@dataclass(frozen=True)
class Subject:
    """Routes of a subject, the rights that they need, and the gate's settings for them."""

    name: str
    permissions: Mapping[str, PermissionRule]
    """Route, such as `GET /api/v1/templates` -> its rule."""
    routers: Sequence[APIRouter] = ()
    """Routers under /api/v1, which are in the OpenAPI document."""
    foreign_routers: Sequence[APIRouter] = ()
    """Routers of a third-party protocol, at its own addresses. Its own documents are its contract, so it is not in ours."""
    histories: frozenset[str] = frozenset()
    """Routes whose answers may be tens of megabytes, and hold a connection to the database for seconds."""
    downloads: frozenset[str] = frozenset()
    """Routes that read a store for minutes or hours."""
    uploads: Mapping[str, Callable[[Settings], int]] = field(default_factory=dict)
    """Route whose body is no JSON -> most bytes of it."""
    example_bodies: Mapping[str, Any] = field(default_factory=dict)
    """Route without the prefix -> an example of its body."""
    example_views: Mapping[type[Any], Any] = field(default_factory=dict)
    """Class of answers -> an example of one, for all routes that answer with it or with a list of it."""
    example_answers: Mapping[str, Any] = field(default_factory=dict)
    """Route without the prefix -> an example of its answer, where that of the class does not fit, or there is none."""
    middleware: Sequence[Callable[[ASGIApp], ASGIApp]] = ()
    """Middleware around the gate, such as one that gives errors in the protocol's own form."""
    basic_prefixes: Sequence[str] = ()
    """Beginnings of the addresses whose clients send Basic authentication."""
    pages: Mapping[str, Callable[[], Response]] = field(default_factory=dict)
    """Address -> a small page for browsers."""
