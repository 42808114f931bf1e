"""Opens a store from its declaration. Clients of object stores are imported only where they are used: a worker that saves to a
directory starts without them."""

from __future__ import annotations

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.kernel.plugins import PluginError
from tenuto.kernel.storage.definitions import StoreDefinition, kind_of
from tenuto.kernel.storage.store import Store, StoreError


def open_store(definition: StoreDefinition, below: str = "") -> Store:
    """The store from `below` on: a path such as `3/3-7`, or empty for all of it. Makes no request. Raises StoreError."""
    try:
        kind = kind_of(definition.type)
    except PluginError as error:
        raise StoreError(str(error)) from None
    if not isinstance(definition, kind.definition):  # its package came after the declaration was read
        raise StoreError(f"The store's kind {definition.type} was installed after this process started; start it again.")
    try:
        for module in kind.needs:
            needed(module)
    except NotInstalled as error:
        raise StoreError(f"A store of type {definition.type} needs a package: {error}.") from None
    return kind.open(definition, below)
