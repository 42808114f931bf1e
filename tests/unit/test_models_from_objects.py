"""Models that are made of objects with the same fields: a command's event, a view of a state."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from tenuto.schemas.base import Model, from_object


class View(Model):
    name: str
    slots: int = 0


def test_fields_come_from_the_object_unless_they_are_given() -> None:
    assert from_object(View, SimpleNamespace(name="a", slots=2, secret="b")) == View(name="a", slots=2)
    assert from_object(View, SimpleNamespace(name="a"), slots=3) == View(name="a", slots=3)


def test_a_field_that_is_nowhere_is_no_default() -> None:
    with pytest.raises(AttributeError, match="slots"):
        from_object(View, SimpleNamespace(name="a"))


def test_values_are_checked_and_unknown_names_refused() -> None:
    with pytest.raises(ValidationError):
        from_object(View, SimpleNamespace(name="a", slots="many"))
    with pytest.raises(ValidationError):
        from_object(View, SimpleNamespace(name="a", slots=1), other=1)
