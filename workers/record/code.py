"""Source files that a script has imported from its own directory: the code that really ran, without the data beside it."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

FILES_MAX = 1_000
FILE_BYTES_MAX = 4 << 20
"""Most bytes of one source file; a larger one is generated."""
_NOT_OWN = ("site-packages", "dist-packages")


def own_sources(root: Path | None = None) -> dict[str, Path]:
    """Source files by path in `root`, or else in the directory of the script; empty if there is no script, as in a notebook."""
    if root is None:
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        if not isinstance(script, str):
            return {}
        root = Path(script).resolve().parent
    root = root.resolve()
    found: dict[str, Path] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        if path.is_relative_to(root) and not any(part in _NOT_OWN for part in path.relative_to(root).parts):
            found[path.relative_to(root).as_posix()] = path
    return dict(sorted(found.items())[:FILES_MAX])


def keep_sources(directory: Path, root: Path | None = None) -> None:
    """Copies the sources below `directory`; `root` as for `own_sources`. Files that cannot be copied are left out: a record
    with a gap is better than no run."""
    for name, source in own_sources(root).items():
        target = directory / name
        with contextlib.suppress(OSError):
            if source.stat().st_size <= FILE_BYTES_MAX:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
