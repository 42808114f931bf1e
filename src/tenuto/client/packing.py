"""Packs a model directory into a context: the same files give the same bytes, so the archive is named by its content.

Left out are caches and version control (see IGNORED), and what the patterns in `.tenutoignore` say, by the rules of `.gitignore`
(git-scm.com/docs/gitignore): `*.ckpt` and `data` match at any depth, `/data` only at the top, `runs/` only directories, `data/*`
with `!data/keep.csv` below it all but that file; `#` begins a comment.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import importlib.util
import os
import stat
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tenuto.client.errors import ClientError
from tenuto.schemas.config.entrypoint import no_trial_in, script_of, standard_module

IGNORE_FILE = ".tenutoignore"
IGNORED = (
    ".git/",
    "__pycache__/",
    "*.pyc",
    ".venv/",
    ".tenuto/",
    "tenuto-runs/",
    ".DS_Store",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".pytest_cache/",
)
FILES_MAX = 20_000
"""More files than this is a data set, not code."""
LARGEST_SHOWN = 5
MOUNTED = "..data"
"""Link that Kubernetes makes in a volume, to the directory that has its files now."""
NO_DIRECTORY = "{} is not a directory: give the directory of your model's code as MODEL_DIR."
ENTRYPOINT_CURE = "correct it, or give the directory that has it as MODEL_DIR."
COMPRESSION = 6


@dataclass(frozen=True)
class Packed:
    sha256: str
    size_bytes: int
    files: int


def pack(directory: Path | None, out: IO[bytes], size_bytes_max: int) -> Packed:
    """Writes the archive (tar.gz) to `out`; None if the directory has no files. Raises ClientError for a directory that cannot be
    packed or is too large."""
    files = [] if directory is None else list(_files(directory))
    counted = _CountedWriter(out, size_bytes_max)
    try:
        # No file name and no time in the gzip header: equal content must give equal bytes.
        with (
            gzip.GzipFile(filename="", fileobj=counted, mode="wb", compresslevel=COMPRESSION, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path, name in files:
                _add(archive, path, name)
    except _TooLarge:
        raise ClientError(_too_large(directory, files, size_bytes_max)) from None
    except OSError as error:
        raise ClientError(f"Cannot read {error.filename or directory}: {error.strerror}.") from error
    return Packed(counted.hash.hexdigest(), counted.size_bytes, len(files))


def check_entrypoint(directory: Path, entrypoint: str) -> None:
    """Raises ClientError if the model directory plainly has no such class or script. Faults that only show when it runs are left
    to the worker."""
    if not directory.is_dir():
        raise ClientError(NO_DIRECTORY.format(directory))
    script = script_of(entrypoint)
    if script is not None and script.file is not None:
        if not (directory / script.file).is_file():
            found = ", ".join(sorted(item.name for item in directory.glob("*.py"))) or "none"
            raise ClientError(f"entrypoint: {script.file} is not in {directory} (Python files there: {found}); {ENTRYPOINT_CURE}")
        _parse(directory / script.file)
        return
    module, _, attribute = entrypoint.partition(":") if script is None else (script.module or "", "", "")
    place = directory.joinpath(*module.split("."))
    package_file = "__init__.py" if script is None else "__main__.py"
    file = next((item for item in (place.with_suffix(".py"), place / package_file) if item.is_file()), None)
    if file is None:
        top = module.split(".")[0]
        if standard := standard_module(entrypoint):
            raise ClientError(f"entrypoint: {no_trial_in(standard)}.")
        if (directory / top).is_dir() or (directory / f"{top}.py").is_file() or not _installed(top):
            found = ", ".join(sorted(item.name for item in directory.glob("*.py"))) or "none"
            raise ClientError(f"entrypoint: {module}.py is not in {directory} (Python files there: {found}); {ENTRYPOINT_CURE}")
        return
    if (standard := standard_module(entrypoint)) in sys.builtin_module_names:
        raise ClientError(f"entrypoint: {no_trial_in(standard)}.")
    tree = _parse(file)
    if script is not None:
        return
    names = _defined(tree)
    wanted = attribute.split(".")[0]
    if "*" not in names and wanted not in names:
        classes = ", ".join(node.name for node in tree.body if isinstance(node, ast.ClassDef)) or "none"
        raise ClientError(f"entrypoint: {file} does not define {wanted} (classes there: {classes}); name one of these.")


def _parse(file: Path) -> ast.Module:
    """Raises ClientError with the line where the file is no Python."""
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        raise ClientError(f"entrypoint: {file}:{error.lineno}: {error.msg}.") from error
    except (ValueError, OSError) as error:
        raise ClientError(f"entrypoint: {file} cannot be read: {error}.") from error


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _sets_by_text(node: ast.AST) -> bool:
    """True for code with which a module may set a name that its text does not have."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("globals", "exec") or (node.func.id in ("vars", "locals") and not node.args)
    return isinstance(node, ast.Attribute) and node.attr == "modules" and getattr(node.value, "id", "") == "sys"


def _defined(tree: ast.AST) -> set[str]:
    """Names that the module may define, in conditional blocks too; "*" if it may define any: it imports all names of another,
    sets names by their text, or answers for them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add("*" if node.name == "__getattr__" and node in getattr(tree, "body", ()) else node.name)
        elif _sets_by_text(node):
            names.add("*")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
    return names


def _files(directory: Path) -> Iterator[tuple[Path, str]]:
    """(path, name in the archive) of every file and link, in a fixed order."""
    if not directory.is_dir():
        raise ClientError(NO_DIRECTORY.format(directory))
    mounted = directory / MOUNTED if (directory / MOUNTED).is_symlink() else directory
    left_out = _left_out(mounted / IGNORE_FILE)
    count = 0
    for here, inside, names in _directories(directory, Path(), left_out):
        for name in sorted(names):
            relative = (inside / name).as_posix()
            if left_out(relative):
                continue
            mode = (here / name).lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                continue  # sockets and pipes carry nothing
            count += 1
            if count > FILES_MAX:
                raise ClientError(
                    f"{directory} has more than {FILES_MAX} files: keep data elsewhere, or leave it out in {IGNORE_FILE}."
                )
            yield here / name, relative


def _directories(here: Path, inside: Path, left_out: Callable[[str], bool]) -> Iterator[tuple[Path, Path, list[str]]]:
    """(directory, its path in the archive, names of the files and links in it), from the top. What Kubernetes mounts of a config
    map or a secret stands for the files that its links lead to: the links change with each mount, the files do not."""
    here = here / MOUNTED if (here / MOUNTED).is_symlink() else here
    names, folders = [], []
    try:
        with os.scandir(here) as found:
            items = list(found)
    except OSError as error:
        raise ClientError(f"Cannot read {here}: {error.strerror}; where it is no code, leave it out in {IGNORE_FILE}.") from error
    for item in items:
        if not item.is_dir(follow_symlinks=False):
            names.append(item.name)
        elif not left_out(f"{(inside / item.name).as_posix()}/"):
            folders.append(item.name)
    yield here, inside, names
    for folder in sorted(folders):
        yield from _directories(here / folder, inside / folder, left_out)


def _left_out(file: Path) -> Callable[[str], bool]:
    """Judges a path relative to the model directory; that of a directory ends with a slash. Raises ClientError."""
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore import GitIgnorePatternError

    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"Cannot read {file}: {error}.") from error
    try:
        return GitIgnoreSpec.from_lines([*IGNORED, *lines]).match_file
    except GitIgnorePatternError as error:
        raise ClientError(f"{file}: {error}; its patterns follow the rules of .gitignore.") from error


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    state = path.lstat()
    entry = tarfile.TarInfo(name)
    # Owner, time and most of the mode say nothing about the code.
    entry.mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
    if stat.S_ISLNK(state.st_mode):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        target = os.path.normpath(os.path.join(os.path.dirname(name), entry.linkname))
        if os.path.isabs(entry.linkname) or target.split("/")[0] == "..":
            raise ClientError(
                f"{path} links to {entry.linkname}, outside the model directory: copy the file, or leave it out in {IGNORE_FILE}."
            )
        archive.addfile(entry)
        return
    with path.open("rb") as file:
        entry.size = os.fstat(file.fileno()).st_size
        archive.addfile(entry, file)


def _too_large(directory: Path | None, files: list[tuple[Path, str]], size_bytes_max: int) -> str:
    sizes = sorted(((path.lstat().st_size, name) for path, name in files), reverse=True)[:LARGEST_SHOWN]
    largest = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for size, name in sizes)
    return (
        f"{directory} packs to more than {size_bytes_max / 1e6:.0f} MB, the limit for a context; largest: {largest}. "
        f"Keep data elsewhere, or leave files out in {IGNORE_FILE}."
    )


class _TooLarge(Exception):
    pass


class _CountedWriter:
    """Counts, hashes and limits the written bytes."""

    def __init__(self, out: IO[bytes], size_bytes_max: int) -> None:
        self._out = out
        self._max = size_bytes_max
        self.size_bytes = 0
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.size_bytes += len(data)
        if self.size_bytes > self._max:
            raise _TooLarge
        self.hash.update(data)
        return self._out.write(data)

    def flush(self) -> None:
        self._out.flush()
