"""Declarations of stores by the operator: address and credentials. They are never part of an experiment or of the record."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, field_validator

from tenuto.schemas.base import Model
from tenuto.schemas.config.storage import StoreName

PREFIX = r"^[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*$|^$"
SECRET_CHARACTERS_MAX = 16_384
"""Most characters of a credential; a service account's key file has some 2,400."""
Secret = Annotated[str, Field(max_length=SECRET_CHARACTERS_MAX)]


class DirectoryDefinition(Model):
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


class S3Definition(Model):
    type: Literal["s3"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    """Name of an existing bucket."""
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    """Path inside the bucket. It must belong to this cluster alone."""
    endpoint: str = Field(default="https://s3.amazonaws.com", pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?$")
    """Address of the server; MinIO and others speak the same protocol."""
    region: str | None = Field(default=None, max_length=64)
    access_key: Secret = Field(repr=False)
    secret_key: Secret = Field(repr=False)
    session_token: Secret | None = Field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


class GcsDefinition(Model):
    type: Literal["gcs"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    service_account_key: Secret | None = Field(default=None, repr=False)
    """Contents of a service account's key file. None: the machine's own account."""

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}/{self.prefix}".rstrip("/")


class AzureDefinition(Model):
    type: Literal["azure"]
    account: str = Field(pattern=r"^[a-z0-9]{3,24}$")
    container: str = Field(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    account_key: Secret | None = Field(default=None, repr=False)
    """Key of the storage account. None: the machine's own identity."""

    @property
    def url(self) -> str:
        return f"az://{self.container}/{self.prefix}".rstrip("/")


StoreDefinition = Annotated[DirectoryDefinition | S3Definition | GcsDefinition | AzureDefinition, Field(discriminator="type")]
DEFINITIONS: TypeAdapter[dict[StoreName, StoreDefinition]] = TypeAdapter(dict[StoreName, StoreDefinition])
"""Declarations by name, in the operator's file and in the message that hands a worker those it needs."""
