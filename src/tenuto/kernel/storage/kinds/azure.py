"""Azure Blob Storage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.kernel.storage.definitions import PREFIX, Secret, StoreDefinition, StoreKind, joined
from tenuto.kernel.storage.store import Store, StoreError


class AzureDefinition(StoreDefinition):
    type: Literal["azure"]
    account: str = Field(pattern=r"^[a-z0-9]{3,24}$")
    container: str = Field(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")
    prefix: str = Field(default="", max_length=512, pattern=PREFIX)
    account_key: Secret | None = Field(default=None, repr=False)
    """Key of the storage account. None: the machine's own identity."""

    @property
    def url(self) -> str:
        return f"az://{self.container}/{self.prefix}".rstrip("/")


def _open(definition: AzureDefinition, below: str) -> Store:
    from obstore.store import AzureStore

    from tenuto.kernel.storage.cloud import CloudStore

    options, prefix = {"account_name": definition.account}, joined(definition.prefix, below)
    if definition.account_key:
        options["account_key"] = definition.account_key
    try:
        store = AzureStore(definition.container, prefix=prefix or None, **options)  # type: ignore[arg-type, unused-ignore]
    except Exception:  # its text may hold the key
        raise StoreError(f"az://{definition.container}: the store's account key cannot be used.") from None
    return CloudStore(store, f"az://{definition.container}/{prefix}")


KIND = StoreKind(AzureDefinition, _open, variables={"account_key": "AZURE_STORAGE_ACCOUNT_KEY"}, needs=("obstore",))
