"""Opens a store from its declaration. Clients of object stores are imported only where they are used: a worker that saves to a
directory starts without them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.kernel.storage.definitions import AzureDefinition, DirectoryDefinition, GcsDefinition, S3Definition, StoreDefinition
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.store import Store, StoreError


def open_store(definition: StoreDefinition, below: str = "") -> Store:
    """The store from `below` on: a path such as `3/3-7`, or empty for all of it. Makes no request. Raises StoreError."""
    if isinstance(definition, DirectoryDefinition):
        return DirectoryStore(Path(definition.path), below)
    prefix = "/".join(filter(None, [definition.prefix, below]))
    if isinstance(definition, S3Definition):
        return _s3(definition, prefix)
    if isinstance(definition, GcsDefinition):
        return _gcs(definition, prefix)
    return _azure(definition, prefix)


def _s3(definition: S3Definition, prefix: str) -> Store:
    from tenuto.kernel.storage.s3 import S3Store

    address = urlsplit(definition.endpoint)
    return S3Store(
        definition.bucket,
        prefix,
        endpoint=address.netloc,
        secure=address.scheme == "https",
        region=definition.region,
        access_key=definition.access_key,
        secret_key=definition.secret_key,
        session_token=definition.session_token,
    )


def _gcs(definition: GcsDefinition, prefix: str) -> Store:
    _needs_obstore()
    from obstore.store import GCSStore

    from tenuto.kernel.storage.cloud import CloudStore

    key = definition.service_account_key
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


def _azure(definition: AzureDefinition, prefix: str) -> Store:
    _needs_obstore()
    from obstore.store import AzureStore

    from tenuto.kernel.storage.cloud import CloudStore

    options = {"account_name": definition.account}
    if definition.account_key:
        options["account_key"] = definition.account_key
    try:
        store = AzureStore(definition.container, prefix=prefix or None, **options)  # type: ignore[arg-type, unused-ignore]
    except Exception:  # its text may hold the key
        raise StoreError(f"az://{definition.container}: the store's account key cannot be used.") from None
    return CloudStore(store, f"az://{definition.container}/{prefix}")


def _needs_obstore() -> None:
    try:
        needed("obstore")
    except NotInstalled as error:
        raise StoreError(f"Checkpoints in Google Cloud Storage or Azure need a package: {error}.") from None
