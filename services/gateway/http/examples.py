"""Writes examples into the OpenAPI document: of every body, and of every answer that is JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from fastapi.routing import APIRoute

from tenuto.services.gateway.http.subject import Subject

HASH = "0c27bb2bb3646801fd40467a7b7eb3fadf5586d494939cf5ee8abf8bfb2b9c53"
EVENT_ID = "3c4858ac-10e2-402d-b763-bf0cf5361a93"
TIME_US = 1_767_225_600_000_000
"""Time in all examples: 2026-01-01."""


def later(seconds: float) -> int:
    return TIME_US + round(seconds * 1e6)


def exemplify(document: dict[str, Any], prefix: str, subjects: Iterable[Subject]) -> None:
    """Adds the examples. `prefix`: that of the document's addresses."""
    subjects = tuple(subjects)
    bodies = {route: example for subject in subjects for route, example in subject.example_bodies.items()}
    for table, place in ((bodies, _body), (answers(subjects), _answer)):
        for route, example in table.items():
            method, path = route.split(" ")
            place(document["paths"][prefix + path][method.lower()])["application/json"]["example"] = example


def answers(subjects: Iterable[Subject]) -> dict[str, Any]:
    """Route -> example of its answer: its own, or that of the class of its answer."""
    subjects = tuple(subjects)
    views = {kind: example for subject in subjects for kind, example in subject.example_views.items()}
    found = {route: example for subject in subjects for route, example in _by_class(subject, views)}
    return found | {route: example for subject in subjects for route, example in subject.example_answers.items()}


def _by_class(subject: Subject, views: Mapping[type, Any]) -> Iterator[tuple[str, Any]]:
    for router in subject.routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            kind = route.response_model
            [item] = get_args(kind)[:1] or [kind]
            if item in views:
                example = views[item]
                yield from ((f"{method} {route.path}", example if item is kind else [example]) for method in route.methods or ())


def _body(operation: dict[str, Any]) -> Any:
    return operation["requestBody"]["content"]


def _answer(operation: dict[str, Any]) -> Any:
    return next(answer for status, answer in operation["responses"].items() if status.startswith("2"))["content"]
