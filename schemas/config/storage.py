"""Where checkpoints are stored. Credentials are named, never written down: the configuration is part of the record."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from tenuto.schemas.base import Model

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
"""Name of an environment variable. A secret that is pasted here by mistake usually does not look like one."""
PREFIX = r"^[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*$|^$"


class StorageBase(Model):
    save_experiment_best: int = Field(default=0, ge=0, le=10_000)
    """checkpoint_policy best: keep the checkpoints with the best n validations of the experiment."""
    save_trial_best: int = Field(default=1, ge=0, le=10_000)
    """checkpoint_policy best: keep the best n of each trial."""
    save_trial_latest: int = Field(default=1, ge=0, le=10_000)
    """checkpoint_policy best: keep the latest n of each trial. While a trial may go on, its latest one is kept in any case."""
    on_failure: Literal["continue", "retry"] = "continue"
    """When a checkpoint cannot be stored. continue: training goes on without it after three tries. retry: training waits
    until it is stored."""


class SharedDirectoryStorage(StorageBase):
    type: Literal["shared_directory"] = "shared_directory"
    path: str | None = None
    """Absolute path that all agents see. None: the cluster's own directory."""

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError("must be an absolute path that every agent can reach, such as /mnt/checkpoints")
        return value


class S3Storage(StorageBase):
    type: Literal["s3"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    """An existing bucket."""
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    """Path inside the bucket. It must belong to this cluster alone."""
    endpoint: str = Field(default="https://s3.amazonaws.com", pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?$")
    """Address of the server; MinIO and others speak the same protocol."""
    region: str | None = Field(default=None, max_length=64)
    access_key_variable: str = Field(default="AWS_ACCESS_KEY_ID", pattern=VARIABLE)
    """Environment variable with the access key: on the agents, and of tracker and gateway."""
    secret_key_variable: str = Field(default="AWS_SECRET_ACCESS_KEY", pattern=VARIABLE)
    session_token_variable: str = Field(default="AWS_SESSION_TOKEN", pattern=VARIABLE)
    """May be unset."""


class GcsStorage(StorageBase):
    type: Literal["gcs"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    """Path inside the bucket. It must belong to this cluster alone."""
    credentials_variable: str = Field(default="GOOGLE_APPLICATION_CREDENTIALS", pattern=VARIABLE)
    """Environment variable with the path of a service account's key file. Unset: the machine's own account."""


class AzureStorage(StorageBase):
    type: Literal["azure"]
    account: str = Field(pattern=r"^[a-z0-9]{3,24}$")
    container: str = Field(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    """Path inside the container. It must belong to this cluster alone."""
    key_variable: str = Field(default="AZURE_STORAGE_ACCOUNT_KEY", pattern=VARIABLE)
    """Environment variable with the account's key. Unset: the machine's own identity."""


def credential_variables(storage: StorageBase) -> tuple[str, ...]:
    """The environment variables with its credentials."""
    return tuple(getattr(storage, name) for name in type(storage).model_fields if name.endswith("_variable"))


def _shared_directory_by_default(value: Any) -> Any:
    return {"type": "shared_directory", **value} if isinstance(value, dict) else value


CheckpointStorage = Annotated[
    Annotated[SharedDirectoryStorage | S3Storage | GcsStorage | AzureStorage, Field(discriminator="type")],
    BeforeValidator(_shared_directory_by_default),
]
