"""Directories of nodes in the pool's directory, which the launcher and all machines of Slurm see: what agents print, and the
environment of those that have not begun. Only the account of the launcher, which is that of the jobs, can read them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenuto.kernel.private_files import private, write_private
from tenuto.kernel.tree_removal import remove_tree

ENVIRONMENT = "agent.env"
ARRAYS = ".arrays"
"""Directory for what tasks of arrays print; no node has such a name."""
KEEP_SECONDS = 7 * 86_400.0
"""Time for which what an agent printed is kept after its last line."""
REMOVED_MAX = 50
"""Most directories that are removed at once, so that a start stays quick."""
LINE_BYTES_MAX = 1_000
"""Most bytes for each line of a log that is read."""


class NodeDirectories:
    def __init__(self, directory: str, cluster: str, pool: str) -> None:
        tag = hashlib.sha256(f"{cluster}\0{pool}".encode()).hexdigest()[:12]
        self._root = Path(directory)
        self._own = self._root / f"{pool}-{tag}"

    def node(self, node_id: str) -> Path:
        """Names of agents have no separators of paths, and do not begin with a dot."""
        return self._own / node_id

    @property
    def own(self) -> Path:
        """Directory of the nodes' directories."""
        return self._own

    def output(self, node_id: str) -> str:
        """File for what a job prints, as a pattern of sbatch. `node_id`: empty for an array, whose tasks share a directory,
        because no pattern has a node's number."""
        return str(self.node(node_id) / "%j.log" if node_id else self._own / ARRAYS / "%A_%a.log")

    def environment(self, node_id: str) -> Path:
        return self.node(node_id) / ENVIRONMENT

    def prepare(self, texts: Mapping[str, str]) -> None:
        """Gives each of the nodes its environment. Raises OSError."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for place in (self._own, self._own / ARRAYS, *(self.node(node_id) for node_id in texts)):
            place.mkdir(mode=0o700, exist_ok=True)
            if place.stat().st_uid != os.geteuid() or place.stat().st_mode & 0o077:
                place.chmod(0o700)
        for node_id, text in texts.items():  # at once, but not synced: without its token a job ends, and the node has failed
            new = self.node(node_id) / f".{ENVIRONMENT}"
            with open(new, "w", opener=private) as file:
                file.write(text)
            new.replace(self.environment(node_id))

    def forget(self, node_ids: Sequence[str]) -> None:
        """Removes what jobs have not read, so that one that begins after all ends at once. Raises OSError."""
        for node_id in node_ids:
            self.environment(node_id).unlink(missing_ok=True)

    def tail(self, node_id: str, job: str, lines_max: int) -> str:
        """Empty: nothing was printed. Raises OSError."""
        try:
            with ((self._own / ARRAYS if "_" in job else self.node(node_id)) / f"{job}.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - lines_max * LINE_BYTES_MAX))
                lines = file.read(lines_max * LINE_BYTES_MAX).decode(errors="replace").splitlines(keepends=True)
        except FileNotFoundError:
            return ""
        return "".join(lines[-lines_max:])

    def tidy(self, kept: frozenset[str]) -> None:
        """Removes what is left of nodes that ended long ago. `kept`: nodes that Slurm knows, and ids of their jobs."""
        before = time.time() - KEEP_SECONDS
        removed = 0
        with contextlib.suppress(OSError):
            for place in self._own.iterdir():
                if place.name in {*kept, ARRAYS} or removed == REMOVED_MAX or not place.is_dir():
                    continue
                times = [item.stat().st_mtime for item in (place, *place.iterdir())]
                if max(times) < before:
                    remove_tree(place)
                    removed += 1
            for log in (self._own / ARRAYS).iterdir():
                if removed < REMOVED_MAX and log.stem not in kept and log.stat().st_mtime < before:
                    log.unlink(missing_ok=True)
                    removed += 1

    def try_to_write(self) -> None:
        """Raises OSError."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = self._root / f".check-{os.getpid()}"
        write_private(probe, "")
        probe.unlink()
