"""Boot script of a cloud's machine, given to it as user data or as its startup script: it installs Tenuto where the image has
none, starts one agent, and turns the machine off when that agent has ended or never joined. The clouds' adapters share it.

The script has the join token of its agent, and a cloud keeps scripts where the machine's processes may ask for them. So the token
admits one agent, once, and is used up within seconds; the script keeps trials from asking (docs/aws.md, docs/gcp.md).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from tenuto.services.launcher.adapters.provisioners import Order
from tenuto.services.launcher.adapters.provisioners.setting_readers import SHOWN_MAX, BadSetting, Reader, matching, number, path

END_NOTICE = "TENUTO_END_NOTICE"
"""Variable that tells the agent whose metadata service announces the machine's end."""
REQUIREMENTS_MAX = 20
HEAD = "#!/bin/bash\n# Boot script of a node of Tenuto.\n"
"""The script removes its own file only if that begins so."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_REQUIREMENT = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/@:%?&=#,;<>!~+\[\]-]{0,499}")


@dataclass(frozen=True)
class BootSettings:
    """Settings of both clouds. Documented in docs/aws.md and docs/gcp.md."""

    python: str = "python3"
    """Python of the machine that runs the agent and, without images, its trials."""
    install: tuple[str, ...] = ()
    """Requirements that pip installs there first. Empty: the machine's image has Tenuto."""
    setup: str = ""
    """Shell file on the machine that is read first. Empty: none."""
    user: str = "root"
    """Account of the agent."""
    worker_user: str = ""
    """Account of trials. Empty: the agent's."""
    directory: str = "/var/lib/tenuto"
    """Directory on the machine for the agent's data and its log."""
    lifetime_hours: int = 168
    """Time after which the machine ends; its trials save and go on elsewhere. So a machine that is on no record ends, too."""


def boot_settings(values: Mapping[str, Any]) -> BootSettings:
    """Boot settings (`KNOWN`) among values that were read. Raises BadSetting."""
    given = {item.name: values[item.name] for item in fields(BootSettings) if item.name in values}
    user = given.get("user", "root")
    worker_user = given.get("worker_user", "tenuto-worker" if user == "root" else user)
    if user not in ("root", worker_user):
        raise BadSetting(f"Setting worker_user needs an agent that is root: leave it out, or leave out user={user}.")
    return BootSettings(**given | {"worker_user": "" if worker_user == user else worker_user})


def boot_script(order: Order, options: BootSettings, *, end_notice: str, boot_seconds: int, stop_seconds: int) -> str:
    """The script, for bash as root. It has the token.

    `boot_seconds`: a machine whose agent has not joined by then turns itself off. `stop_seconds`: time between the cloud's order
    to shut down and the machine's end."""
    environment = {**order.environment, END_NOTICE: end_notice}
    for name in environment:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is no variable")
    given = {
        "node": order.node_id, "python": options.python, "setup": options.setup, "user": options.user,
        "worker_user": options.worker_user, "directory": options.directory, "boot_seconds": str(boot_seconds),
        "stop_seconds": str(stop_seconds), "end_notice": end_notice, "lifetime_seconds": str(options.lifetime_hours * 3_600),
        "environment": "".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items()),
    }  # fmt: skip
    lines = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items())
    requirements = " ".join(shlex.quote(item) for item in options.install)
    return f"{HEAD}{lines}install=({requirements})\n{files(__package__).joinpath('boot.sh').read_text()}"


def _install(name: str, text: str) -> tuple[str, ...]:
    found = text.split()
    if len(found) > REQUIREMENTS_MAX:
        raise BadSetting(f"Setting {name} may have at most {REQUIREMENTS_MAX} requirements (found {len(found)}).")
    for item in found:
        if not _REQUIREMENT.fullmatch(item):
            raise BadSetting(
                f"Setting {name} must be requirements of pip with spaces between and none inside, such as tenuto[torch] or"
                f" tenuto@https://example.org/tenuto-1.0-py3-none-any.whl (found {item[:SHOWN_MAX]!r})."
            )
    return tuple(found)


def _python(name: str, text: str) -> str:
    return text if re.fullmatch(r"python3(\.\d{1,2})?", text) else path(name, text)


_ACCOUNT = matching(r"[a-z_][a-z0-9_-]{0,31}", "the name of an account")
KNOWN: dict[str, Reader] = {
    "python": _python,
    "install": _install,
    "setup": path,
    "user": _ACCOUNT,
    "worker_user": _ACCOUNT,
    "directory": path,
    "lifetime_hours": number(1, 8_760),
}
"""Readers of these settings; a cloud's own stand beside them."""
assert KNOWN.keys() == {item.name for item in fields(BootSettings)}
