"""Strict JSON bodies: numbers, texts and booleans are told apart, and none is taken for another (`{"slot_id": false}` names no
slot 0)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

SCALARS = frozenset({"bool_type", "int_type", "float_type", "string_type"})


def _taken(problem: ErrorDetails) -> bool:
    """True for a number, text or boolean that would be taken for another. All else is the handler's to judge: a model that looks
    at its values itself is judged by pydantic's rules for Python, which refuse a list for a tuple."""
    return problem["type"] in SCALARS and isinstance(problem["input"], bool | int | float | str)


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        if not self.dependant.body_params:
            return handler
        (body,) = self.dependant.body_params
        assert body.field_info.annotation is not None
        adapter: TypeAdapter[Any] = TypeAdapter(body.field_info.annotation)

        async def strictly(request: Request) -> Response:
            document = await request.body()
            if document.strip():
                try:
                    # By pydantic's rules for JSON, where a list may be a tuple and a text an id: those for Python refuse both.
                    adapter.validate_json(document, strict=True)
                except ValidationError as error:
                    problems = [
                        {**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False) if _taken(item)
                    ]
                    if problems:
                        raise RequestValidationError(problems) from error
            return await handler(request)

        return strictly
