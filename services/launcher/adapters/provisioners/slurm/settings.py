"""Settings of a pool whose nodes are jobs of Slurm, read and checked. Names and values are documented in docs/slurm.md."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners.setting_readers import (
    BadSetting,
    Reader,
    file_name,
    matching,
    number,
    path,
    read,
)

OPTIONS_MAX = 50
"""Most further options of sbatch."""
_OPTION = re.compile(r"--([a-z][a-z0-9-]{1,40})(=[A-Za-z0-9._,:;/@+*&|()\[\]<>=-]{0,500})?")
DENIED = frozenset(
    {
        # Set here, and read again to find nodes and what they print.
        "array", "comment", "error", "export", "export-file", "input", "job-name", "nodes", "ntasks", "ntasks-per-node",
        "open-mode", "output", "parsable", "requeue", "no-requeue", "signal", "time", "time-min",
        # Other programs, accounts, files and clusters than those of the pool.
        "batch", "bb", "bbf", "chdir", "cluster", "clusters", "container", "get-user-env", "gid", "uid", "wrap", "wckey",
        # No job would come of it, or one that never starts, or this program would wait.
        "begin", "deadline", "dependency", "help", "hold", "quiet", "test-only", "usage", "verbose", "version", "wait",
    }
)  # fmt: skip
"""Options of sbatch that are not taken from settings."""


@dataclass(frozen=True)
class JobSettings:
    """Job of one type of nodes."""

    directory: str
    """Directory that the launcher and all nodes see, for what agents print and, until they have read it, their tokens."""
    python: str = "python3"
    """Python on the nodes in which Tenuto is installed."""
    setup: str = ""
    """Shell file on the nodes that is read before the agent starts. Empty: none."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    time: str = ""
    """Wall time in Slurm's notation. Empty: the partition's default."""
    gres: str = ""
    cpus_per_task: int = 0
    """0: as Slurm gives them."""
    mem: str = ""
    constraint: str = ""
    extra: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """Options of sbatch. Each is one argument, so that no value can be read as another option."""
        given = {
            "partition": self.partition, "account": self.account, "qos": self.qos, "reservation": self.reservation,
            "time": self.time, "gres": self.gres, "cpus-per-task": str(self.cpus_per_task or ""), "mem": self.mem,
            "constraint": self.constraint,
        }  # fmt: skip
        return [f"--{name}={value}" for name, value in given.items() if value] + list(self.extra)


@dataclass(frozen=True)
class RestSettings:
    """Road to slurmrestd."""

    base: str
    """Begin of its addresses; of a socket one that names no host."""
    socket: str = ""
    """File of its socket. Empty: it is reached by the network."""
    token: str = ""
    """File in the launcher's directory of secrets with a JWT. Empty: a socket's daemon sees who asks."""
    ca: str = ""
    """File there with the authority of its certificate. Empty: one of the system's."""


def settings_of(provisioning: Provisioning, node_type: NodeType) -> JobSettings:
    """Settings of a job of this type: the pool's, and the type's own before them. Raises BadSetting."""
    for name in ("directory", *_REST):
        if name in node_type.settings:
            raise BadSetting(f"Setting {name} belongs to the pool, not to its type of nodes {node_type.name}.")
    given: Mapping[str, str] = {**provisioning.settings, **node_type.settings}
    values = read("slurm", {**_KNOWN, **_REST}, given, {"directory": "directory=/project/tenuto/nodes"})
    found = JobSettings(**{name: value for name, value in values.items() if name in _KNOWN})
    for option in found.extra if "restd" in values else ():
        if not _REST_OPTION.fullmatch(option):
            raise BadSetting(
                f"Setting extra may have --exclusive, --nice=NUMBER and --licenses=... where restd is set (found"
                f" {option[:100]!r})."
            )
    return found


def rest_settings_of(provisioning: Provisioning) -> RestSettings | None:
    """None: Slurm's commands are used. Raises BadSetting."""
    given = {name: text for name, text in provisioning.settings.items() if name in _REST}
    values = read("slurm", _REST, given, {})
    address = values.get("restd", "")
    if not address:
        if values:
            raise BadSetting(f"Setting {min(values)} says how slurmrestd is asked: give restd, such as restd={_EXAMPLE}.")
        return None
    socket = address.removeprefix("http+unix://") if address.startswith("http+unix:") else ""
    if not socket and "restd_token" not in values:
        raise BadSetting(
            "Setting restd_token is required where slurmrestd is reached by the network: give it, such as slurm.jwt."
        )
    base = "http://slurmrestd" if socket else address.rstrip("/")
    return RestSettings(base, socket, values.get("restd_token", ""), values.get("restd_ca", ""))


def seconds_of(text: str) -> float | None:
    """Seconds of a time in Slurm's notation (minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S); infinity if it is without limit. None:
    it is no such time."""
    if text.lower() in ("infinite", "unlimited"):
        return float("inf")
    if not re.fullmatch(_TIME, text):
        return None
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, minutes, seconds = (0, *parts, 0)[:3]
    return float(int(days or 0) * 86_400 + hours * 3_600 + minutes * 60 + seconds)


_TIME = r"\d{1,6}-\d{1,2}(:\d{1,2}){0,2}|\d{1,6}(:\d{1,2}){0,2}"


def _extra(name: str, text: str) -> tuple[str, ...]:
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise BadSetting(f"Setting {name} cannot be read: {error}.") from None
    if len(found) > OPTIONS_MAX:
        raise BadSetting(f"Setting {name} may have at most {OPTIONS_MAX} options (found {len(found)}).")
    for option in found:
        match = _OPTION.fullmatch(option)
        if match is None:
            raise BadSetting(f"Setting {name} must be long options of sbatch, --name or --name=value (found {option[:100]!r}).")
        # sbatch takes the beginning of an option's name for the whole, as far as it is the only one.
        if any(denied.startswith(match[1]) for denied in DENIED):
            raise BadSetting(f"Setting {name} may not have --{match[1]}, which Tenuto sets itself or forbids: leave it out.")
    return tuple(found)


def _python(name: str, text: str) -> str:
    return text if re.fullmatch(r"python3(\.\d{1,2})?", text) else path(name, text)


_NAME = matching(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}", "a name of letters, digits and ._@-")
_KNOWN: dict[str, Reader] = {
    "directory": path,
    "python": _python,
    "setup": path,
    "partition": matching(r"[A-Za-z0-9][A-Za-z0-9._,-]{0,199}", "names of partitions, with commas between"),
    "account": _NAME,
    "qos": _NAME,
    "reservation": _NAME,
    "time": matching(_TIME, "a time of Slurm: minutes, HH:MM:SS, D-HH or D-HH:MM:SS"),
    "gres": matching(r"[A-Za-z0-9][A-Za-z0-9._,:/-]{0,199}", "resources of Slurm, such as gpu:4"),
    "cpus_per_task": number(1, 100_000),
    "mem": matching(r"\d{1,9}[KMGT]?", "a number with K, M, G or T, such as 64G"),
    "constraint": matching(r"[A-Za-z0-9_.,&|*()\[\]-]{1,200}", "features of nodes, such as a100|h100"),
    "extra": _extra,
}
_EXAMPLE = "http+unix:///run/slurmrestd/socket"
_REST: dict[str, Reader] = {
    "restd": matching(
        r"http\+unix:///[A-Za-z0-9._/@+-]{1,100}|https://[A-Za-z0-9._-]{1,253}(:\d{1,5})?/?|http://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?/?",
        f"{_EXAMPLE}, https://HOST:PORT, or http:// of this machine",
    ),
    "restd_token": file_name,
    "restd_ca": file_name,
}
_REST_OPTION = re.compile(r"--exclusive|--nice=-?\d{1,9}|--licenses=[A-Za-z0-9._:,@-]{1,200}")
assert _KNOWN.keys() == {item.name for item in fields(JobSettings)}
