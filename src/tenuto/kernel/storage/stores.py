"""The cluster's stores by name: its own directory, and those that the operator declared in a file that services and agents read.

A recorded location names a store and a checkpoint, and nothing else: `store://NAME/3/3-7/manifests/3-7-1-100.json`. So the sender
of a report cannot choose where a service reads or deletes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from tenuto.kernel.private_files import write_private
from tenuto.kernel.storage.definitions import DEFINITIONS, StoreDefinition
from tenuto.kernel.storage.kinds.directory import DirectoryDefinition
from tenuto.kernel.storage.opening import open_store
from tenuto.kernel.storage.store import Store, StoreError
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.storage import SHARED_STORE, STORE_NAME
from tenuto.schemas.ids import experiment_of

STORES_FILE_BYTES_MAX = 1 << 20
_WHERE = re.compile(
    r"(?P<root>store://(?P<store>[a-z0-9-]{1,63})|[a-z0-9]+://.*)"
    r"/(?P<experiment>0|[1-9][0-9]{0,17})/(?P<trial>(?P=experiment)-[1-9][0-9]{0,8})/manifests/(?P<checkpoint>[A-Za-z0-9_-]{1,128})\.json"
)


@dataclass(frozen=True)
class Located:
    """Parts of a recorded location."""

    store: str | None
    """Name of the store. None: the location was recorded before stores had names, and means the experiment's own store."""
    trial_id: str
    checkpoint_id: str


class NotOurs(StoreError):
    """The location is not that of the expected checkpoint; nothing was read or deleted."""


def located(location: str) -> Located:
    """Parts of a checkpoint's location. Raises NotOurs if it is none."""
    found = _WHERE.fullmatch(location)
    if found is None or (found["root"].startswith("store://") and found["store"] is None):
        raise NotOurs(f"{location!r} is not the location of a checkpoint.")
    return Located(found["store"], found["trial"], found["checkpoint"])


@dataclass
class Stores:
    shared: Path | None = None
    """The cluster's own directory of checkpoints, which is the store `shared`."""
    file: Path | None = None
    """File with the operator's declarations. None: no declarations."""
    given: Mapping[str, StoreDefinition] = field(default_factory=dict)
    """Declarations that the launcher handed to this agent, or the agent to this worker."""
    _read: tuple[tuple[int, int, int], dict[str, StoreDefinition]] | None = None

    @classmethod
    def given_by(cls, handed_out: bytes) -> Stores:
        """Stores of a worker, from its agent's message; an agent of an earlier version sends none."""
        return cls(given=DEFINITIONS.validate_json(handed_out) if handed_out else {})

    def definitions(self) -> dict[str, StoreDefinition]:
        """Declarations by name, the shared store included; the file is read again if it has changed. Raises StoreError."""
        shared: dict[str, StoreDefinition] = (
            {SHARED_STORE: DirectoryDefinition(path=str(self.shared.absolute()))} if self.shared is not None else {}
        )
        return {**self.given, **self._declared(), **shared}  # an agent's own file comes first: it may have other addresses

    def open(self, name: str, below: str = "") -> Store:
        """The store from `below` on: a path such as `3/3-7`, or empty for all of it. Makes no request. Raises StoreError."""
        definition = self.definitions().get(name)
        if definition is None:
            raise StoreError(
                f"There is no store {name!r} here; `tenuto store ls` shows those that there are, and the operator declares "
                "another with `tenuto store create`, in the file that TENUTO_STORES_FILE names for the services and each agent."
            )
        return open_store(definition, below)

    def open_trial(self, name: str, trial_id: str) -> Store:
        """The store of one trial's checkpoints. Raises StoreError."""
        return self.open(name, f"{experiment_of(trial_id)}/{trial_id}")

    def open_location(self, location: str, own: str, trial_id: str | None = None) -> tuple[Store, str]:
        """Store of the trial, and id of the checkpoint at a location. `own`: store of the experiment. `trial_id`: trial that
        the checkpoint must belong to. Raises NotOurs, StoreError."""
        found = located(location)
        if trial_id is not None and found.trial_id != trial_id:
            raise NotOurs(f"{location} is not the location of a checkpoint of trial {trial_id}.")
        return self.open_trial(found.store or own, found.trial_id), found.checkpoint_id

    def handed_out(self, names: Iterable[str]) -> bytes:
        """Declarations of these stores, as far as they exist, with their credentials, for a worker that needs them. Raises
        StoreError."""
        definitions = self.definitions()
        return DEFINITIONS.dump_json({name: definitions[name] for name in sorted(set(names)) if name in definitions})

    def _declared(self) -> dict[str, StoreDefinition]:
        if self.file is None:
            return {}
        try:
            status = self.file.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self.file}: the stores' declarations cannot be read: {error.strerror}.") from error
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._read is None or self._read[0] != version:
            self._read = (version, read_stores(self.file))
        return self._read[1]


def needed_stores(assignment: Assignment) -> set[str]:
    """Names of the stores that workers need: the experiment's own, and those of checkpoints that they may start from."""
    sources = [item for item in (assignment.checkpoint, *assignment.earlier_checkpoints) if item is not None]
    found = {assignment.config.checkpoint_storage.store}
    for item in sources:
        with contextlib.suppress(NotOurs):  # the worker says what is wrong with it
            if (name := located(item.location).store) is not None:
                found.add(name)
    return found


def stores_of(shared_directory: str, stores_file: str) -> Stores:
    """Stores of a service or an agent, from its settings."""
    shared = Path(shared_directory) / "checkpoints" if shared_directory else None
    return Stores(shared, Path(stores_file) if stores_file else None)


def read_stores(file: Path) -> dict[str, StoreDefinition]:
    """Declarations in the file; none if it does not exist. Raises StoreError with a text that shows no secret."""
    import yaml  # not needed in workers

    from tenuto.schemas.config.yaml_text import read_plain

    try:
        with file.open("rb") as opened:
            raw = opened.read(STORES_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{file}: the stores' declarations cannot be read: {error.strerror}.") from error
    try:
        if len(raw) > STORES_FILE_BYTES_MAX:
            raise ValueError(f"it is larger than {STORES_FILE_BYTES_MAX >> 20} MiB")
        return DEFINITIONS.validate_python(read_plain(raw) or {})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in wrong["loc"])
        raise StoreError(f"{file}: the stores' declarations cannot be read: {path}: {wrong['msg']}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        why = f"line {mark.line + 1} is not YAML" if mark is not None else str(error)
        raise StoreError(f"{file}: the stores' declarations cannot be read: {why}.") from None


def write_stores(file: Path, definitions: Mapping[str, StoreDefinition]) -> None:
    """Writes the declarations atomically, readable only by the owner. Raises OSError."""
    from tenuto.schemas.config.yaml_text import dump_yaml

    write_private(file, dump_yaml(DEFINITIONS.dump_python(dict(sorted(definitions.items())), exclude_none=True)))


def is_store_name(name: str) -> bool:
    return re.fullmatch(STORE_NAME, name) is not None
