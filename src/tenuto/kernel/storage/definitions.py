"""Declarations of stores by the operator: address and credentials. They are never part of an experiment or of the record. Each
kind of store is a plug-in of `tenuto.stores`, found by the declaration's `type`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PlainValidator, SerializeAsAny, TypeAdapter

from tenuto.kernel import plugins
from tenuto.kernel.plugins import PluginError
from tenuto.kernel.storage.store import Store
from tenuto.schemas.base import Model
from tenuto.schemas.config.storage import StoreName

GROUP = "tenuto.stores"
PREFIX = r"^[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*$|^$"
"""Pattern of a path inside a bucket."""
SECRET_CHARACTERS_MAX = 16_384
"""Most characters of a credential; a service account's key file has some 2,400."""
Secret = Annotated[str, Field(max_length=SECRET_CHARACTERS_MAX)]
TYPE_CHARACTERS_MAX = 64


class StoreDefinition(Model):
    """Declaration of one store. A kind's own has `type` as the literal of its name, and its settings as fields."""

    type: str = Field(min_length=1, max_length=TYPE_CHARACTERS_MAX)

    @property
    def url(self) -> str:
        """Place of the store for people, without a credential."""
        raise NotImplementedError

    @property
    def directory(self) -> Path | None:
        """Directory in which the store's keys are files, so that a container can be given a trial's part of it. None: it is
        reached otherwise."""
        return None


class NotHere(StoreDefinition):
    """Declaration of a kind that this Python lacks. It is kept and handed on as it is, as it may be used elsewhere; opening the
    store says what is missing."""

    model_config = ConfigDict(extra="allow")

    @property
    def url(self) -> str:
        return f"{self.type}: (its package is not installed here)"

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        yield "type", self.type  # others may be credentials


@dataclass(frozen=True)
class StoreKind:
    """Declaration of a plug-in of `tenuto.stores`. Its module is imported by services, agents and workers whenever such a store
    is declared, so it imports its client in `open`."""

    definition: type[StoreDefinition]
    open: Callable[[Any, str], Store]
    """(definition, path below which the store begins, such as `3/3-7`, or empty) -> the store. Makes no request. Raises
    StoreError, whose text has no credential."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Credentials: field of the definition -> environment variable of the operator's shell from which it is read once, when the
    store is declared."""
    needs: tuple[str, ...] = ()
    """Modules that `open` imports and that may be missing."""


def kind_of(type_: str) -> StoreKind:
    """Raises PluginError."""
    found = plugins.load(GROUP, type_)
    if not isinstance(found, StoreKind):
        raise PluginError(f"{type_} of {GROUP} is a {type(found).__name__}; it must be a StoreKind (docs/plug-ins.md).")
    return found


def joined(prefix: str, below: str) -> str:
    """Path of the part `below` a declared prefix."""
    return "/".join(filter(None, (prefix, below)))


def _of_its_kind(value: Any) -> StoreDefinition:
    """Raises ValueError, ValidationError among them."""
    if isinstance(value, StoreDefinition):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise ValueError("a store has settings, and `type` among them")
    try:
        definition = kind_of(value["type"]).definition
    except PluginError:
        definition = NotHere
    return definition.model_validate(value)


AnyDefinition = Annotated[SerializeAsAny[StoreDefinition], PlainValidator(_of_its_kind)]
DEFINITIONS: TypeAdapter[dict[StoreName, StoreDefinition]] = TypeAdapter(dict[StoreName, AnyDefinition])
"""Declarations by name, in the operator's file and in the message that hands a worker those it needs."""
