"""Lengths of training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from tenuto.schemas.base import Model

Unit = Literal["batches", "epochs"]


class Length(Model):
    """Exactly one of `batches` and `epochs`, such as `{epochs: 5}`."""

    batches: int | None = Field(default=None, ge=1)
    """Steps: batches of the training data."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the training data."""

    @model_validator(mode="after")
    def _one_unit(self) -> Length:
        if (self.batches is None) == (self.epochs is None):
            raise ValueError("give exactly one of batches and epochs, such as {batches: 100}")
        return self

    @property
    def unit(self) -> Unit:
        return "batches" if self.batches is not None else "epochs"

    @property
    def value(self) -> int:
        value = self.batches if self.batches is not None else self.epochs
        assert value is not None
        return value
