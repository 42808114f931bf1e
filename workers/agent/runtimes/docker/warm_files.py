"""Files of warm containers in the agent's directory: what they see of the node while no run is in them, and which run is."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from tenuto.kernel.account import Account
from tenuto.kernel.tree_removal import remove_tree
from tenuto.workers.agent.runtimes.docker import boot
from tenuto.workers.agent.runtimes.docker.mounts import Bind

PLACE = "/tmp/tenuto-run"
"""Temporary directory of each run of a warm container. The same for all, because libraries remember it when they are imported."""


class WarmFiles:
    """Directory of one warm container."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def _run(self) -> Path:
        return self.directory / "run"

    def make(self, places: Sequence[str], account: Account | None) -> list[Bind]:
        """Makes the directory; returns what the container sees of it. Raises OSError."""
        door, temporary = self.directory / "door", self.directory / "tmp"
        self.directory.mkdir(mode=0o700, parents=True)
        door.mkdir()
        door.chmod(0o711)
        (temporary / "home").mkdir(mode=0o700, parents=True)
        if account is not None:
            for path in (temporary / "home", temporary):
                account.own(path, 0o700)
        binds = [Bind(str(door), str(PurePosixPath(boot.WARM_SOCKET).parent)), Bind(str(temporary), PLACE, writable=True)]
        for number, target in enumerate(places):
            place = self.directory / f"place-{number}"
            place.mkdir()
            place.chmod(0o755)
            binds.append(Bind(str(place), target))
        return binds

    @contextlib.contextmanager
    def listening(self, account: Account | None) -> Iterator[socket.socket]:
        """The socket that the container connects to, once. Raises OSError."""
        door = os.open(self.directory / "door", os.O_RDONLY | os.O_DIRECTORY)
        name = PurePosixPath(boot.WARM_SOCKET).name
        path = self.directory / "door" / name
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(f"/proc/self/fd/{door}/{name}")  # the path itself may be too long for a socket
                if account is not None:
                    account.own(path, 0o600)
                listening.listen(1)
                listening.setblocking(False)
                yield listening
        finally:
            path.unlink(missing_ok=True)
            os.close(door)

    def prepare_targets(self, places: Sequence[str], targets: Sequence[str]) -> bool:
        """Makes a directory to mount at for each target. False: one is in none of the places. Raises OSError."""
        for target in targets:
            if target == PLACE:
                continue
            found = next(((number, below) for number, place in enumerate(places) if (below := _below(target, place))), None)
            if found is None:
                return False
            path = self.directory / f"place-{found[0]}"
            for part in found[1]:
                path /= part
                path.mkdir(mode=0o755, exist_ok=True)
                path.chmod(0o755)
        return True

    def clear_places(self) -> None:
        """Removes the directories that a run was mounted at: their names are other runs'. Never what was mounted: that is so in
        the container only."""
        for place in self.directory.glob("place-*"):
            for path in place.iterdir():
                remove_tree(path)

    def note_run(self, allocation_id: str | None) -> None:
        """Notes the run that is in the container; None: there is none. Raises OSError."""
        if allocation_id is None:
            self._run.unlink(missing_ok=True)
            return
        partial = self.directory / "run.partial"
        partial.write_text(allocation_id)
        partial.replace(self._run)

    @property
    def run(self) -> str | None:
        try:
            return self._run.read_text()
        except OSError:
            return None

    def remove(self) -> None:
        remove_tree(self.directory)


def apart(places: Sequence[str], others: Sequence[str]) -> bool:
    """True if none of the places is in another one, or in one of the others, or has one of these in it."""
    paths = [PurePosixPath(path) for path in places]
    rest = [PurePosixPath(path) for path in others]
    for number, path in enumerate(paths):
        for other in (*paths[:number], *rest):
            if path.is_relative_to(other) or other.is_relative_to(path):
                return False
    return True


def _below(target: str, place: str) -> tuple[str, ...]:
    path = PurePosixPath(target)
    return path.relative_to(place).parts if path.is_relative_to(place) else ()
