"""The registry of event types: stable names with a version, never Python paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

from tenuto.schemas.base import JsonScalar, Model


class Reason(Model):
    """Reason of a decision: the rule and the numbers that it compared. The sentence for users is made of them when it is read
    (`schemas/sentences`)."""

    rule: str
    numbers: dict[str, JsonScalar] = {}


class EventData(Model):
    """Base of all event payloads. A subclass names its OWNER (the only service that emits it) and its STREAM kind."""

    OWNER: ClassVar[str] = ""
    STREAM: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1
    TYPE: ClassVar[str] = ""

    def stream_key(self) -> str:
        """Key of the event's stream: the part of its name after the slash."""
        raise NotImplementedError

    def stream(self) -> str:
        return f"{self.STREAM}/{self.stream_key()}"


E = TypeVar("E", bound="EventData")
EVENT_MODELS: dict[str, type[EventData]] = {}
OWNERS: dict[str, str] = {}


def event(name: str) -> Callable[[type[E]], type[E]]:
    """Register a payload model under its stable name. The name is written out: it is a storage format."""

    def register(cls: type[E]) -> type[E]:
        assert name not in EVENT_MODELS, f"event type {name} is defined twice"
        cls.TYPE = name
        EVENT_MODELS[name] = cls
        OWNERS[name] = cls.OWNER
        return cls

    return register


def parse(type_: str, schema_version: int, payload: bytes) -> EventData:
    """The payload as its model. Older schema versions go through `upcasters` first.

    Raises KeyError for an unknown type and pydantic.ValidationError for a payload that does not fit.
    """
    model = EVENT_MODELS[type_]
    if schema_version != model.VERSION:
        payload = _upcast(model, schema_version, payload)
    # Every reader of the log decodes each of its events here: the calls around the validator would take as long as it does.
    return model.__pydantic_validator__.validate_json(payload)  # type: ignore[no-any-return]


def _upcast(model: type[EventData], schema_version: int, payload: bytes) -> bytes:
    from tenuto.schemas.upcasters import upcast

    return upcast(model.TYPE, schema_version, model.VERSION, payload)
