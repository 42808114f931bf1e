"""The base model of everything that is stored or sent."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict

JsonScalar = str | int | float | bool | None


class Model(BaseModel):
    """Frozen and strict: an unknown field is refused, never dropped.

    NaN and infinities are written as the strings "NaN", "Infinity" and "-Infinity": pydantic's default writes null, which
    could not be read back into a float.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings", allow_inf_nan=True)

    def to_json(self) -> bytes:
        """The exact JSON bytes, in field order. Two equal models give equal bytes."""
        return self.__pydantic_serializer__.to_json(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Model of these JSON bytes (`data`). Raises pydantic's ValidationError for an unknown field or a wrong value."""
        return cls.model_validate_json(data)


M = TypeVar("M", bound=Model)


def from_object(kind: type[M], source: object, **more: Any) -> M:
    """Model of the attributes of `source` that its fields name, and of `more`, which are not taken from there. Raises
    AttributeError for a field that neither has, also where it has a default: one that was renamed on one side only would be
    lost in silence."""
    return kind(**{name: getattr(source, name) for name in kind.model_fields if name not in more}, **more)
