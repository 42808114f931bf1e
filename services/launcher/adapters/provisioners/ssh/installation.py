"""Installation of Tenuto on hosts, as the launcher wants it: its name, which is another one as soon as anything of it is, the
files that are sent for it, and what pip is told. `host_install.py` makes it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tenuto.services.launcher.adapters.provisioners.ssh.connections import Connections, HostAway
from tenuto.services.launcher.adapters.provisioners.ssh.inventory import Host, SshSettings
from tenuto.version import __version__

WHEELS_MAX = 500
"""Most wheels of a wheelhouse: Tenuto with a framework has some eighty."""
BYTES_MAX = 20 << 30
"""Most bytes that are sent to a host: a framework with its libraries for GPUs has some five gigabytes."""
ROUNDS_MAX = 5
"""Most times that a host is asked which files it lacks, for one start."""


@dataclass(frozen=True)
class SentFile:
    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Installation:
    name: str
    """The version, and a digest of all that the installation depends on."""
    paths: dict[str, Path]
    """Files to send, by digest."""
    spec: dict[str, object]
    """Description of the installation that is sent to a host."""


def installation_of(settings: SshSettings, python: str, secrets: Path) -> Installation | None:
    """None: the hosts' Python has Tenuto. Raises BadSetting and OSError. Reads whole files at first."""
    if not settings.install:
        return None
    wheel = settings.install if settings.install.endswith(".whl") else ""
    _same_version(settings.install, wheel)
    paths = [_file(secrets, wheel, "install")] if wheel else []
    if settings.wheelhouse:
        paths += _wheels(secrets / settings.wheelhouse, but=wheel)
    if settings.constraints:
        paths.append(_file(secrets, settings.constraints, "constraints"))
    files = {_digest(path, stat.st_mtime_ns, stat.st_size): (path, stat.st_size) for path in paths for stat in [path.stat()]}
    if sum(size for _, size in files.values()) > BYTES_MAX:
        raise BadSetting(f"The files to install have more than {BYTES_MAX >> 30} GiB: leave out what the hosts have.")
    sent = [asdict(SentFile(path.name, sha256, size)) for sha256, (path, size) in files.items()]
    options = ["--no-index", "--find-links", "{files}"] if settings.wheelhouse else []
    if settings.constraints:
        options += ["--constraint", f"{{files}}/{settings.constraints}"]
    spec: dict[str, object] = {
        "version": __version__, "files": sent, "pip": [*options, _requirement(settings, wheel)],
        "system_site_packages": settings.system_site_packages,
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps([spec, python], sort_keys=True).encode()).hexdigest()[:12]
    name = f"{__version__}-{digest}"
    return Installation(name, {sha256: path for sha256, (path, _) in files.items()}, {**spec, "name": name})


async def send_missing(connections: Connections, settings: SshSettings, host: Host, wanted: Installation) -> None:
    """Sends what the host lacks. Raises HostAway, and ProvisionerError if nothing can be installed there."""
    for _ in range(ROUNDS_MAX):
        said = await connections.ask(host, {**settings.request(host, "check"), "install": wanted.spec})
        if problem := visible(str(said.get("problem") or ""))[:300]:
            raise ProvisionerError(f"Host {host.known_as} cannot install Tenuto: {problem}.", "refused")
        missing = said.get("missing")
        known = missing if isinstance(missing, dict) else {}
        left = {sha256: had for sha256, had in known.items() if sha256 in wanted.paths and isinstance(had, int) and had >= 0}
        if not left:
            return
        for file in _files(wanted):
            if file.sha256 in left:
                about = {**asdict(file), "offset": left[file.sha256]}
                request = {**settings.request(host, "put"), "file": about}
                try:
                    await connections.put(host, request, wanted.paths[file.sha256], left[file.sha256])
                except OSError as error:
                    raise ProvisionerError(f"{file.name} cannot be read: {error.strerror}.", "refused") from None
    raise HostAway(f"Host {host.known_as} did not keep what was sent.")


def _files(wanted: Installation) -> Sequence[SentFile]:
    files = wanted.spec["files"]
    assert isinstance(files, list)
    return [SentFile(**item) for item in files]


def _same_version(install: str, wheel: str) -> None:
    version = wheel.split("-")[1] if wheel else install.partition("==")[2]
    if version and version != __version__:
        raise BadSetting(f"Setting install asks for Tenuto {version}, and the launcher is {__version__}: install that one.")


def _requirement(settings: SshSettings, wheel: str) -> str:
    extras = f"[{settings.install_extras}]" if settings.install_extras else ""
    if wheel:
        return f"{{files}}/{wheel}{extras}"
    name, at, url = (part.strip() for part in settings.install.partition("@"))
    return f"{name}{extras} @ {url}" if at else f"tenuto{extras}=={__version__}"


def _file(secrets: Path, name: str, setting: str) -> Path:
    if not (secrets / name).is_file():
        raise BadSetting(f"Setting {setting} names {name}, which is not in the launcher's directory of secrets: put it there.")
    return secrets / name


def _wheels(directory: Path, but: str) -> list[Path]:
    found = sorted(path for path in directory.glob("*.whl") if path.is_file() and path.name != but)
    if not found:
        raise BadSetting(
            f"Setting wheelhouse names {directory.name}, which is no directory with wheels in the launcher's directory of"
            " secrets: make it with `pip wheel -w`."
        )
    if len(found) > WHEELS_MAX:
        raise BadSetting(f"Wheelhouse {directory.name} has more than {WHEELS_MAX} wheels.")
    return found


@lru_cache(maxsize=2 * WHEELS_MAX)
def _digest(path: Path, modified_ns: int, size: int) -> str:
    """`modified_ns`, `size`: another file of the same name is read again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def in_thread(settings: SshSettings, hosts: Sequence[Host], secrets: Path) -> dict[str, Installation | None]:
    """Installation of each host, by host; None: its Python has Tenuto. Reads files in a thread. Raises BadSetting and OSError."""

    def all_of_them() -> dict[str, Installation | None]:
        made = {
            python: installation_of(settings, python, secrets) for python in {host.python or settings.python for host in hosts}
        }
        return {host.known_as: made[host.python or settings.python] for host in hosts}

    return await asyncio.to_thread(all_of_them)
