"""Notes of images that came to the node by a user's credentials: others do not get them from there without asking the registry.

The daemon gives each image that it has to any caller that names it. So an agent notes, by the image's own digest, its registry,
and the users whose credentials that registry has accepted for it. Another registry's answer does not count: for an image that the
daemon has already, it takes nothing but the digest from it. A pull is noted before it begins: after an agent died in the middle,
the image must not pass for one that the operator has loaded."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.kernel.private_files import write_private


class Pull(NamedTuple):
    """A pull with a user's credentials that has begun, and whose result is not known yet."""

    name: str
    registry: str
    open_image: str
    """Image that the name meant before the pull, if all users might use it; empty: none."""


class PrivateImages:
    """Each call raises OSError."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._noted: Mapping[str, Mapping[str, Any]] = {}
        """Registry and users by image."""
        self._pulling: tuple[Pull, ...] = ()
        self._read = False

    @property
    def pulling(self) -> tuple[Pull, ...]:
        self._load()
        return self._pulling

    @property
    def images(self) -> Collection[str]:
        self._load()
        return self._noted.keys()

    def may_use(self, image_id: str, user: str) -> bool:
        """True if the user may use the image without asking its registry."""
        self._load()
        return image_id not in self._noted or user in self._noted[image_id]["users"]

    def begin(self, pull: Pull) -> None:
        self._load()
        self._store(self._noted, (*self._pulling, pull))

    def end(self, pull: Pull, image_id: str | None = None, user: str = "") -> None:
        """Notes that the pull has brought this image by the user's credentials. No image: the pull brought none, or one that all
        users may use. No user: the users who may use the image are not known."""
        self._load()
        noted = dict(self._noted)
        if image_id is not None:
            known = noted.get(image_id, {"registry": pull.registry, "users": []})
            if known["registry"] == pull.registry:
                noted[image_id] = {"registry": pull.registry, "users": sorted({*known["users"], *filter(None, [user])})}
        pulling = list(self._pulling)
        if pull in pulling:
            pulling.remove(pull)
        self._store(noted, tuple(pulling))

    def give_to_all(self, image_id: str, registry: str) -> None:
        """Removes the note: the registry gives the image to all users, or to all whom the operator lets run trials here."""
        self._load()
        if image_id in self._noted and self._noted[image_id]["registry"] == registry:
            self._store({key: value for key, value in self._noted.items() if key != image_id}, self._pulling)

    def keep(self, image_ids: Collection[str]) -> None:
        """Forgets images that the node does not have any more."""
        self._load()
        if self._noted.keys() - set(image_ids):
            self._store({key: value for key, value in self._noted.items() if key in image_ids}, self._pulling)

    def _load(self) -> None:
        if self._read:
            return
        try:
            found = json.loads(self._file.read_text())
            noted = {
                key: {"registry": str(value["registry"]), "users": list(value["users"])} for key, value in found["images"].items()
            }
            self._noted, self._pulling = noted, tuple(Pull(*map(str, item)) for item in found["pulling"])
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OSError(
                f"{self._file}, in which the agent notes whose images are whose, is damaged: remove all images that came by "
                "credentials of users (docker image rm), and then the file"
            ) from error
        self._read = True

    def _store(self, noted: Mapping[str, Mapping[str, Any]], pulling: tuple[Pull, ...]) -> None:
        write_private(self._file, json.dumps({"images": noted, "pulling": pulling}))
        self._noted, self._pulling = noted, pulling
