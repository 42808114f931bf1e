"""Store of an experiment's checkpoints. Operators declare stores; an experiment only names one. It contains no address and no
credential, because a user may choose neither for the services."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tenuto.schemas.base import Model

SHARED_STORE = "shared"
"""Name of the cluster's own directory, which exists without being declared."""
STORE_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
StoreName = Annotated[str, Field(pattern=STORE_NAME)]
_OWN_DIRECTORY = {"type": "shared_directory", "path": None}
"""Setting that earlier versions wrote for the cluster's own directory."""
DECLARED = frozenset(
    (
        *("type", "path", "bucket", "prefix", "endpoint", "endpoint_url", "region", "account", "container", "access_key"),
        *("secret_key", "access_key_variable", "secret_key_variable", "session_token_variable", "credentials_variable"),
        *("key_variable", "connection_string", "account_url", "credential", "host_path", "storage_path", "container_path"),
        *("propagation", "checkpoint_path"),
    )
)
"""Fields that belong to a store's declaration, here and in Determined's configurations."""


class CheckpointStorage(Model):
    store: StoreName = SHARED_STORE
    """Name of a store that the operator declared with `tenuto store create`; `tenuto store ls` lists them. shared: the
    cluster's own directory."""
    save_experiment_best: int = Field(default=0, ge=0, le=10_000)
    """Number of checkpoints kept for the experiment, those with its best validations, with checkpoint_policy best."""
    save_trial_best: int = Field(default=1, ge=0, le=10_000)
    """Number of best checkpoints kept for each trial, with checkpoint_policy best."""
    save_trial_latest: int = Field(default=1, ge=0, le=10_000)
    """Number of latest checkpoints kept for each trial, with checkpoint_policy best. While a trial may go on, its latest one is
    always kept."""
    on_failure: Literal["continue", "retry"] = "continue"
    """Action if a checkpoint cannot be stored. continue: training goes on without it after three tries. retry: training waits
    until it is stored."""
    async_save: bool = Field(default=True, exclude_if=lambda value: value is True)
    """True: training goes on while a checkpoint is written and stored, from a copy of the state in memory. False: training
    waits until it is stored."""
    when_busy: Literal["wait", "skip"] = Field(default="wait", exclude_if=lambda value: value == "wait")
    """Action if a checkpoint of min_checkpoint_period or checkpoint_period_minutes is due while two before it are still being
    stored. wait: training waits for one of them. skip: this one is left out, and the log says so."""

    @model_validator(mode="before")
    @classmethod
    def _declares_no_store(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        left = {name: item for name, item in value.items() if not (name in _OWN_DIRECTORY and item == _OWN_DIRECTORY[name])}
        found = sorted(str(name) for name in left if name in DECLARED)
        if found:
            raise ValueError(
                f"{', '.join(found)}: an experiment does not say where a store is or how it is entered, it names one: the "
                "operator declares it with `tenuto store create NAME ...`, and the experiment has "
                "`checkpoint_storage: {store: NAME}`"
            )
        return left


def named(storage: dict[str, Any]) -> dict[str, Any]:
    """Present form of a configuration from before stores had names. The store gets the name under which the operator must
    declare it if its checkpoints are still wanted."""
    kind = storage.get("type", "shared_directory")
    kept = {name: value for name, value in storage.items() if name in CheckpointStorage.model_fields}
    place = {"shared_directory": "path", "azure": "container"}.get(kind, "bucket")
    where = storage.get(place)
    if where is None:
        return kept
    letters = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in str(where).lower()).strip("-")
    return {"store": f"{kind.partition('_')[0]}-{letters}"[:63].strip("-"), **kept}
