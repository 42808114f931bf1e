"""A directory that services and agents all see."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import field_validator

from tenuto.kernel.storage.definitions import StoreDefinition, StoreKind
from tenuto.kernel.storage.directory import DirectoryStore


class DirectoryDefinition(StoreDefinition):
    type: Literal["directory"] = "directory"
    path: str
    """Absolute path at which services and agents all see the directory. It must belong to this cluster alone."""

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/") or "\0" in value:
            raise ValueError("must be an absolute path that services and agents see, such as /mnt/checkpoints")
        return value

    @property
    def url(self) -> str:
        return f"file://{self.path.rstrip('/')}"

    @property
    def directory(self) -> Path:
        return Path(self.path)


def _open(definition: DirectoryDefinition, below: str) -> DirectoryStore:
    return DirectoryStore(Path(definition.path), below)


KIND = StoreKind(DirectoryDefinition, _open)
