"""Writes examples into the OpenAPI document: of every body, and of the answers that programs read first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenuto.services.gateway.http.subject import Subject


def exemplify(document: dict[str, Any], prefix: str, subjects: Iterable[Subject]) -> None:
    """Adds the examples. `prefix`: that of the document's addresses."""
    for subject in subjects:
        for table, place in ((subject.example_bodies, _body), (subject.example_answers, _answer)):
            for route, example in table.items():
                method, path = route.split(" ")
                place(document["paths"][prefix + path][method.lower()])["application/json"]["example"] = example


def _body(operation: dict[str, Any]) -> Any:
    return operation["requestBody"]["content"]


def _answer(operation: dict[str, Any]) -> Any:
    return next(answer for status, answer in operation["responses"].items() if status.startswith("2"))["content"]
