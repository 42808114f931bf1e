"""S3, or a server that speaks its protocol."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from tenuto.kernel.storage.definitions import PREFIX, Secret, StoreDefinition, StoreKind, joined
from tenuto.kernel.storage.store import Store


class S3Definition(StoreDefinition):
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


def _open(definition: S3Definition, below: str) -> Store:
    from tenuto.kernel.storage.s3 import S3Store

    address = urlsplit(definition.endpoint)
    return S3Store(
        definition.bucket,
        joined(definition.prefix, below),
        endpoint=address.netloc,
        secure=address.scheme == "https",
        region=definition.region,
        access_key=definition.access_key,
        secret_key=definition.secret_key,
        session_token=definition.session_token,
    )


KIND = StoreKind(
    S3Definition,
    _open,
    variables={
        "access_key": "AWS_ACCESS_KEY_ID",
        "secret_key": "AWS_SECRET_ACCESS_KEY",
        "session_token": "AWS_SESSION_TOKEN",
    },
)
