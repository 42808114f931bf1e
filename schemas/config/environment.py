"""The environment of an experiment's worker processes: the image, directories of the node, variables and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from tenuto.schemas.base import Model

RESERVED_VARIABLE_PREFIX = "TENUTO_"
IMAGE_CHARACTERS_MAX = 512
MOUNTS_MAX = 64
_IMAGE = re.compile(
    r"(?:(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
"""A reference as Docker's own grammar has it (distribution/reference): host, path in small letters, tag, digest."""


def _one_image(value: Any) -> Any:
    if isinstance(value, Mapping):
        raise ValueError("must be the name of one image: which processors a trial sees follows from the slots of its agent")
    return value


def _image(value: str) -> str:
    if len(value) > IMAGE_CHARACTERS_MAX or not _IMAGE.fullmatch(value):
        raise ValueError(
            f"{value[:80]!r} is not the name of an image; write it as for `docker pull`, such as python:3.12-slim or "
            "registry.example.com/team/train:1 or NAME@sha256:DIGEST"
        )
    return value


def _secret_name(value: Any) -> Any:
    if isinstance(value, Mapping):  # as Determined has it, with a password in it that no sentence may quote
        raise ValueError(
            "must be the name of a secret: put the user and the password into one as JSON (`tenuto secret set NAME`), and never "
            "into a configuration, which everybody reads"
        )
    return value


def _absolute(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or ".." in path.parts or "\0" in value or path == PurePosixPath("/"):
        raise ValueError(f"{value!r} must be an absolute path below /, without `..`")
    return str(path)


HostPath = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_absolute)]


SECRET_NAME_PATTERN = r"^[a-z][a-z0-9_.-]{0,62}$"
SecretReference = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9_.-]{0,62}/)?[a-z][a-z0-9_.-]{0,62}$")]


class Mount(Model):
    """A directory of the node that a container sees."""

    source: HostPath
    """Directory or file on the node, in what the agent's operator allows (TENUTO_DOCKER_MOUNTS)."""
    target: HostPath | None = Field(default=None, exclude_if=lambda value: value is None)
    """Path in the container. None: the same as on the node."""
    writable: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: the container may write there, if the operator allows that, too."""

    @property
    def path(self) -> str:
        """Path in the container."""
        return self.target or self.source


class AllowedMount(Model):
    """A directory of nodes that experiments may mount."""

    path: HostPath
    writable: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: containers may write there, and mount nothing below it. False: what is below may be mounted, too."""


class Environment(Model):
    image: Annotated[str, BeforeValidator(_one_image), AfterValidator(_image)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Container image that trials run in, such as `pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime` or `NAME@sha256:DIGEST`. It
    needs Python 3.11 or newer and the framework; Tenuto's own packages come from the agent. None: the agent's own Python
    environment."""
    pull: Literal["missing", "always", "never"] = Field(default="missing", exclude_if=lambda value: value == "missing")
    """Starts at which an agent asks the registry for the image. missing: if the node does not have it. always: each time.
    never: the node must have it."""
    registry_auth: Annotated[SecretReference, BeforeValidator(_secret_name)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Secret of the user (`tenuto secret set`) with the credentials for the image's registry: JSON with `username` and
    `password`, or the content of Docker's config.json. Only the agent's Docker daemon gets it, with the pull. None: no
    credentials of the user's."""
    read_only: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: the container cannot write into the image's files; /tmp, the run's own directories and writable mounts stay
    writable."""
    mounts: tuple[Mount, ...] = Field(default=(), max_length=MOUNTS_MAX, exclude_if=lambda value: not value)
    """Directories of the node that the container sees, each as a path or as {source, target, writable}."""
    variables: dict[str, str] = {}
    """Environment variables of the worker processes. They are visible to every user; `NAME: {secret: wandb}` is short for an
    entry of `secrets`."""
    secrets: dict[str, SecretReference] = Field(default={}, exclude_if=lambda value: not value)
    """Environment variables whose values are secrets of the user (`tenuto secret set`): variable -> name of the secret. The
    values are never recorded, and are masked in the workers' output."""

    reuse_worker: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: the next trial of this experiment on the same slot may take over the process of one that ended in order, which is
    sooner than to start another. Your modules are imported anew; settings of libraries other than torch and NumPy stay as your
    code set them. For Trial classes on one slot, in processes of the node and without secrets; other trials have a process of
    their own."""

    @property
    def secret_references(self) -> frozenset[str]:
        """All secrets that an agent needs to start a trial."""
        return frozenset([*self.secrets.values(), *filter(None, [self.registry_auth])])

    @property
    def container_fields(self) -> tuple[str, ...]:
        """Fields that only a container of the trial's own can fulfil: a node that runs in the image as a whole cannot."""
        given = {"mounts": self.mounts, "pull": self.pull != "missing", "registry_auth": self.registry_auth}
        return tuple(name for name, value in {**given, "read_only": self.read_only}.items() if value)

    @property
    def node_image(self) -> str:
        """Image of a node that can run the trials as a whole; empty: they need containers of their own, or no image."""
        return self.image or "" if not self.container_fields else ""

    @model_validator(mode="before")
    @classmethod
    def _secrets_among_variables(cls, value: Any) -> Any:
        given = value.get("variables") if isinstance(value, Mapping) else None
        if not isinstance(given, Mapping) or not any(isinstance(item, Mapping) for item in given.values()):
            return value
        secrets = value.get("secrets") or {}
        if not isinstance(secrets, Mapping):
            raise ValueError("secrets must be a mapping of variables to names of secrets, such as {WANDB_API_KEY: wandb}")
        secrets = dict(secrets)
        for name, item in given.items():
            if isinstance(item, Mapping):
                if set(item) != {"secret"} or not isinstance(item["secret"], str):
                    raise ValueError(
                        f"variables.{name} must be text, or {{secret: NAME}} with the name of a secret that `tenuto secret set "
                        "NAME` made; a secret itself never stands in a configuration"
                    )
                secrets[name] = item["secret"]
        plain = {name: item for name, item in given.items() if not isinstance(item, Mapping)}
        return {**value, "variables": plain, "secrets": secrets}

    @field_validator("mounts", mode="before")
    @classmethod
    def _paths(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError("must be a list of paths, or of {source, target, writable}")
        return [{"source": item} if isinstance(item, str) else item for item in value]

    @model_validator(mode="after")
    def _once(self) -> Environment:
        if self.image is None and self.container_fields:
            name = self.container_fields[0]
            raise ValueError(f"{name} is for a container; name its image, too, or leave {name} out")
        if self.image is not None and self.reuse_worker:
            raise ValueError("reuse_worker is for processes of the node; leave it out, as containers of an image are kept warm")
        targets = [mount.path for mount in self.mounts]
        if len(set(targets)) < len(targets):
            raise ValueError("mounts: two of them have the same path in the container; give one another target")
        for name in self.secrets:
            if name in self.variables:
                raise ValueError(f"{name} is given twice, as a variable and as a secret; leave one out")
        return self

    @field_validator("variables", "secrets")
    @classmethod
    def _not_reserved(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name.startswith(RESERVED_VARIABLE_PREFIX):
                raise ValueError(f"{name} is reserved: names that begin with {RESERVED_VARIABLE_PREFIX} are Tenuto's own")
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} is not a name of an environment variable")
        return value
