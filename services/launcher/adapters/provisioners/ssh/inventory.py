"""Settings of a pool whose nodes are hosts of a list, and the list: read and checked. All is documented in docs/ssh.md."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.config.resources import SLOTS_MAX
from tenuto.schemas.config.yaml_text import read_plain
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order
from tenuto.services.launcher.adapters.provisioners.setting_readers import (
    BadSetting,
    Reader,
    file_name,
    matching,
    number,
    path,
    read,
    truth,
)

INVENTORY_BYTES_MAX = 1 << 20
"""Largest list of hosts: a thousand hosts with some labels each."""
HOSTS_MAX = 1_000
DIRECTORY_DEFAULT = "~/.tenuto-nodes"
STOP_SECONDS_DEFAULT = 150
MARGIN_SECONDS = 5
"""Part of the time to stop that the agent does not count on, for its own end."""
_ADDRESS = r"^[A-Za-z0-9:][A-Za-z0-9._:%-]{0,252}$"
_ACCOUNT = r"^[a-z_][a-z0-9_.-]{0,31}$"
_PYTHON = r"^(python3(\.\d{1,2})?|/[A-Za-z0-9._/@+,=-]{1,500})$"
_DIRECTORY = r"^(~/|/)[A-Za-z0-9._/@+,=-]{1,500}$"


class Host(Model):
    """One machine. It has one agent at a time, of whatever pool and cluster."""

    address: str = Field(pattern=_ADDRESS)
    name: str = Field(default="", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$|^$")
    """Name in messages. Empty: its address."""
    port: int = Field(default=22, ge=1, le=65_535)
    user: str = Field(default="", pattern=rf"{_ACCOUNT}|^$")
    """Account. Empty: that of the pool's settings, else the launcher's own."""
    python: str = Field(default="", pattern=rf"{_PYTHON}|^$")
    directory: str = Field(default="", pattern=rf"{_DIRECTORY}|^$")
    slots: int | None = Field(default=None, ge=1, le=SLOTS_MAX)
    """Slots that it has: it serves types with as many or fewer. None: any."""
    types: Annotated[tuple[str, ...], Field(max_length=50)] = ()
    """Types of nodes that it serves. Empty: all."""
    labels: Annotated[tuple[Annotated[str, Field(pattern=r"^[^\s,\x00-\x1f]{1,200}$")], ...], Field(max_length=50)] = ()
    environment: dict[
        Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,99}$")], Annotated[str, Field(max_length=2_000, pattern=r"^[^\x00]*$")]
    ] = Field(default={}, max_length=100)
    """Variables of its agents, such as TENUTO_SHARED_DIRECTORY. No secrets."""

    @property
    def known_as(self) -> str:
        return self.name or self.address

    def serves(self, node_type: NodeType) -> bool:
        return (not self.types or node_type.name in self.types) and (self.slots is None or self.slots >= node_type.slots)


class Inventory(Model):
    hosts: Annotated[tuple[Host, ...], Field(min_length=1, max_length=HOSTS_MAX)]

    @model_validator(mode="after")
    def _names_differ(self) -> Inventory:
        names = [host.known_as for host in self.hosts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two hosts are named {twice[0]}: give them names")
        return self


@dataclass(frozen=True)
class SshSettings:
    hosts: str
    key: str
    known_hosts: str
    """Files in the launcher's directory of secrets."""
    user: str = ""
    python: str = "python3"
    directory: str = DIRECTORY_DEFAULT
    stop_seconds: int = STOP_SECONDS_DEFAULT
    """Time from SIGTERM to SIGKILL."""
    install: str = ""
    """A wheel among the launcher's files, or a requirement of pip. Empty: `python` has Tenuto."""
    install_extras: str = ""
    wheelhouse: str = ""
    """A directory among the launcher's files, whose wheels are sent. Empty: pip asks the host's index of packages."""
    constraints: str = ""
    system_site_packages: bool = False

    def request(self, host: Host, do: str) -> dict[str, object]:
        """Fields of every request to this host."""
        return {"do": do, "directory": host.directory or self.directory, "python": host.python or self.python}

    def start_request(
        self, host: Host, cluster: str, pool: str, order: Order, install: Mapping[str, object] | None
    ) -> dict[str, object]:
        """Request that has the token: for standard input alone. `install`: None if `python` has Tenuto."""
        environment = {
            "TENUTO_LEAVE_SIGNAL_SECONDS": str(self.stop_seconds - MARGIN_SECONDS),
            **host.environment,
            **order.environment,
        }
        labels = [item for item in (order.environment.get("TENUTO_AGENT_LABELS", ""), *host.labels) if item]
        if labels:
            environment["TENUTO_AGENT_LABELS"] = ",".join(labels)
        command = [host.python or self.python, "-m", "tenuto.cli.main", "agent", "run", "--name", order.node_id]
        return {
            **self.request(host, "start"), "cluster": cluster, "pool": pool, "node_id": order.node_id, "command": command,
            "environment": environment, "stop_seconds": self.stop_seconds, "install": install,
        }  # fmt: skip

    def command(self, host: Host, sizes: Sequence[int]) -> str:
        """Command line on the host: it reads the program's parts from standard input, and the request after them."""
        part = "exec(compile(sys.stdin.buffer.read(int(size)), 'tenuto-host', 'exec'), globals())"
        program = f"import sys; list(map(lambda size: {part}, sys.argv[1:]))"
        return shlex.join([host.python or self.python, "-I", "-c", program, *map(str, sizes)])


def settings_of(provisioning: Provisioning) -> SshSettings:
    """Raises BadSetting."""
    for node_type in provisioning.node_types:
        if node_type.settings:
            raise BadSetting(
                f"Type of nodes {node_type.name} has the setting {min(node_type.settings)}, but hosts are what the list says of"
                " them: leave it out, and name the type in `types` of its hosts."
            )
    examples = {"hosts": "hosts=hosts.yaml", "key": "key=id_ed25519", "known_hosts": "known_hosts=known_hosts"}
    found = SshSettings(**read("ssh", _KNOWN, provisioning.settings, examples))
    for name in ("install_extras", "wheelhouse", "constraints", "system_site_packages"):
        if getattr(found, name) and not found.install:
            raise BadSetting(f"Setting {name} says how Tenuto is installed: give install, such as install=tenuto.")
    return found


def inventory_of(file: Path) -> Inventory:
    """Raises BadSetting and OSError."""
    with file.open("rb") as opened:
        text = opened.read(INVENTORY_BYTES_MAX + 1)
    if len(text) > INVENTORY_BYTES_MAX:
        raise BadSetting(f"The list of hosts {file.name} has more than {INVENTORY_BYTES_MAX} bytes.")
    try:
        return Inventory.model_validate(read_plain(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise BadSetting(f"The list of hosts {file.name} is no YAML{where}: see docs/ssh.md.") from None
    except ValidationError as error:  # without what was found there: the file may be another than was meant
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "its top"
        raise BadSetting(f"The list of hosts {file.name} is wrong at {where}: {first['msg']}.") from None


def _directory(name: str, text: str) -> str:
    if text.startswith("~/"):
        path(name, text[1:])
        return text
    return path(name, text)


def _python(name: str, text: str) -> str:
    return text if re.fullmatch(r"python3(\.\d{1,2})?", text) else path(name, text)


_KNOWN: dict[str, Reader] = {
    "hosts": file_name,
    "key": file_name,
    "known_hosts": file_name,
    "user": matching(_ACCOUNT.strip("^$"), "the name of an account"),
    "python": _python,
    "directory": _directory,
    "stop_seconds": number(20, 3_600),
    "install": matching(
        r"tenuto(-[A-Za-z0-9._+]+){4,5}\.whl|tenuto(==[A-Za-z0-9.+!]{1,50})?|tenuto ?@ ?https://[A-Za-z0-9._~:/#=%+-]{1,500}",
        "a wheel of Tenuto among the launcher's files, tenuto, tenuto==VERSION or tenuto@https://...",
    ),
    "install_extras": matching(r"[a-z][a-z0-9-]{0,30}(,[a-z][a-z0-9-]{0,30}){0,19}", "extras of Tenuto, with commas between"),
    "wheelhouse": file_name,
    "constraints": file_name,
    "system_site_packages": truth,
}
assert _KNOWN.keys() == {item.name for item in fields(SshSettings)}
