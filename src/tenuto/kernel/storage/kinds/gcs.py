"""Google Cloud Storage."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from tenuto.kernel.storage.definitions import PREFIX, Secret, StoreDefinition, StoreKind, joined
from tenuto.kernel.storage.store import Store, StoreError


class GcsDefinition(StoreDefinition):
    type: Literal["gcs"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    service_account_key: Secret | None = Field(default=None, repr=False)
    """Contents of a service account's key file. None: the machine's own account."""

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}/{self.prefix}".rstrip("/")


def _open(definition: GcsDefinition, below: str) -> Store:
    from obstore.store import GCSStore

    from tenuto.kernel.storage.cloud import CloudStore

    key, prefix = definition.service_account_key, joined(definition.prefix, below)
    try:
        if key is not None:
            json.loads(key)  # the client's own error about invalid JSON quotes a part of the key
        store = (
            GCSStore(definition.bucket, prefix=prefix or None, service_account_key=key)
            if key
            else GCSStore(definition.bucket, prefix=prefix or None)
        )
    except Exception:
        raise StoreError(f"gs://{definition.bucket}: the store's service account key cannot be used.") from None
    return CloudStore(store, f"gs://{definition.bucket}/{prefix}")


KIND = StoreKind(GcsDefinition, _open, needs=("obstore",))
