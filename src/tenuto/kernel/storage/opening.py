"""Opens stores: from an experiment's configuration and the environment's credentials, and from recorded locations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.manifest import MANIFESTS, manifest_key
from tenuto.kernel.storage.store import Store, StoreError
from tenuto.schemas.config.storage import AzureStorage, CheckpointStorage, GcsStorage, S3Storage, SharedDirectoryStorage
from tenuto.schemas.ids import experiment_of

# The object stores' clients are imported where they are used: a worker that saves to a directory starts without them.


class NoCredentials(StoreError):
    """A variable that the configuration names is not set here."""


def open_trial(
    storage: CheckpointStorage, shared_checkpoints: Path, trial_id: str, environment: Mapping[str, str] | None = None
) -> Store:
    """The store of one trial's checkpoints. `shared_checkpoints` is the cluster's own directory. Makes no request. Raises
    StoreError."""
    return open_root(storage, shared_checkpoints, environment, below=f"{experiment_of(trial_id)}/{trial_id}")


def open_root(
    storage: CheckpointStorage, shared_checkpoints: Path, environment: Mapping[str, str] | None = None, below: str = ""
) -> Store:
    """The store, from `below` on: a path such as `3/3-7`, or all of it."""
    environment = os.environ if environment is None else environment
    if isinstance(storage, SharedDirectoryStorage):
        root = Path(storage.path) if storage.path else shared_checkpoints
        return DirectoryStore(root / below if below else root)
    prefix = "/".join(filter(None, [storage.prefix, below]))
    if isinstance(storage, S3Storage):
        return _s3(storage, prefix, environment)
    if isinstance(storage, GcsStorage):
        return _gcs(storage, prefix, environment)
    return _azure(storage, prefix, environment)


def open_location(location: str, storage: CheckpointStorage, environment: Mapping[str, str] | None = None) -> tuple[Store, str]:
    """The trial's store and the checkpoint id that a recorded location names. The location says where, the configuration says
    how to get there. Raises StoreError."""
    trial_url, slash, name = location.rpartition(f"/{MANIFESTS}/")
    checkpoint_id = name.removesuffix(".json")
    if not slash or f"{checkpoint_id}.json" != name or "/" in name or not checkpoint_id:
        raise StoreError(f"{location!r} is not the location of a checkpoint's manifest.")
    parts = urlsplit(trial_url)
    where = unquote(parts.path)
    if ".." in where.split("/"):
        raise StoreError(f"{location!r} is not the location of a checkpoint's manifest.")
    if parts.scheme == "file" and not parts.netloc and where.startswith("/"):
        return DirectoryStore(Path(where)), checkpoint_id
    environment = os.environ if environment is None else environment
    prefix = where.strip("/")
    if parts.scheme == "s3" and isinstance(storage, S3Storage) and parts.netloc == storage.bucket:
        return _s3(storage, prefix, environment), checkpoint_id
    if parts.scheme == "gs" and isinstance(storage, GcsStorage) and parts.netloc == storage.bucket:
        return _gcs(storage, prefix, environment), checkpoint_id
    if parts.scheme == "az" and isinstance(storage, AzureStorage) and parts.netloc == storage.container:
        return _azure(storage, prefix, environment), checkpoint_id
    raise StoreError(f"{location} is not in the experiment's checkpoint_storage (type {storage.type}).")


def location_of(store: Store, checkpoint_id: str) -> str:
    return f"{store.url}/{manifest_key(checkpoint_id)}"


def is_manifest(location: str) -> bool:
    """Otherwise it is a plain directory, as the first versions wrote them."""
    return location.endswith(".json") and f"/{MANIFESTS}/" in location


def _required(environment: Mapping[str, str], variable: str, field: str) -> str:
    value = environment.get(variable, "")
    if not value:
        raise NoCredentials(
            f"The environment variable {variable}, which checkpoint_storage.{field} names, is not set in this process: "
            "set it for agents, tracker and gateway (with `tenuto up`, in the shell that starts the cluster)."
        )
    return value


def _s3(storage: S3Storage, prefix: str, environment: Mapping[str, str]) -> Store:
    from tenuto.kernel.storage.s3 import S3Store

    address = urlsplit(storage.endpoint)
    return S3Store(
        storage.bucket,
        prefix,
        endpoint=address.netloc,
        secure=address.scheme == "https",
        region=storage.region,
        access_key=_required(environment, storage.access_key_variable, "access_key_variable"),
        secret_key=_required(environment, storage.secret_key_variable, "secret_key_variable"),
        session_token=environment.get(storage.session_token_variable) or None,
    )


def _gcs(storage: GcsStorage, prefix: str, environment: Mapping[str, str]) -> Store:
    _needs_obstore()
    from obstore.store import GCSStore

    from tenuto.kernel.storage.cloud import CloudStore

    file = environment.get(storage.credentials_variable, "")
    try:
        store = (
            GCSStore(storage.bucket, prefix=prefix or None, service_account_path=file)
            if file
            else GCSStore(storage.bucket, prefix=prefix or None)
        )
    except Exception as error:
        raise StoreError(
            f"gs://{storage.bucket}: the credentials that {storage.credentials_variable} names cannot be used."
        ) from error
    return CloudStore(store, f"gs://{storage.bucket}/{prefix}")


def _azure(storage: AzureStorage, prefix: str, environment: Mapping[str, str]) -> Store:
    _needs_obstore()
    from obstore.store import AzureStore

    from tenuto.kernel.storage.cloud import CloudStore

    key = environment.get(storage.key_variable, "")
    options = {"account_name": storage.account, **({"account_key": key} if key else {})}
    try:
        store = AzureStore(storage.container, prefix=prefix or None, **options)  # type: ignore[arg-type, unused-ignore]
    except Exception as error:  # its text may hold the key
        raise StoreError(f"az://{storage.container}: the key in {storage.key_variable} cannot be used.") from error
    return CloudStore(store, f"az://{storage.container}/{prefix}")


def _needs_obstore() -> None:
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise StoreError(
            "Checkpoints in Google Cloud Storage or Azure need the package obstore: pip install 'tenuto[cloud]'."
        ) from None
