"""Slurm's commands: started without a shell, bounded in time, and their errors in the words of the port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import ProvisionerError

COMMAND_SECONDS_MAX = 40.0
"""Longest time of one command. sbatch itself tries for about 10 s to reach a controller that is being started anew."""
MESSAGE_CHARACTERS_MAX = 400
"""Most characters of Slurm's own words in a message."""
KEPT = ("PATH", "HOME", "LANG", "SLURM_CONF", "SLURM_JWT", "KRB5CCNAME", "LD_LIBRARY_PATH", "TZ")
"""Variables that Slurm's commands see, and so jobs. SBATCH_* and the like would be options that no setting names, and the
launcher's own variables have secrets."""

Kind = Literal["capacity", "quota", "refused", "unreachable"]
_KINDS: tuple[tuple[Kind, str], ...] = (
    (
        "unreachable",
        r"unable to contact|connect failure|connection refused|timed out|transport endpoint|zero bytes|not responding|"
        r"communication|munge|authentication|configuration source|fetch_config|standby|in a bad state|database",
    ),
    (
        "quota",
        r"accounting/qos policy|assoc\w*(max|grp|limit)|qos\w*(max|grp|limit)|policy limit|job submit limit|"
        r"too many (jobs|tasks)|limit (reached|exceeded)|quota",
    ),
    (
        "capacity",
        r"temporarily unable to accept|nodes? (are|is) busy|required nodes? not available|not available now|"
        r"resource temporarily unavailable|partition is (down|drained|inactive)|reservation",
    ),
)  # the first that fits; everything else is refused, as no later try would change it


@dataclass(frozen=True)
class CommandResult:
    """End of one command."""

    code: int
    output: str
    errors: str

    @property
    def words(self) -> str:
        """Slurm's own words on what was wrong, on one line."""
        lines = [re.sub(r"^(\w+: )?(error: |fatal: )?", "", line).strip() for line in (self.errors or self.output).splitlines()]
        return visible("; ".join(dict.fromkeys(line for line in lines if line))[:MESSAGE_CHARACTERS_MAX]).rstrip(".")

    def error(self, what: str) -> ProvisionerError:
        """Error for a failed command. `what`: end of the sentence "Slurm does not ...", in the infinitive."""
        return ProvisionerError(f"Slurm does not {what}: {self.words or f'exit code {self.code}'}.", kind_of(self.errors))


def kind_of(words: str) -> Kind:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, words, re.IGNORECASE)), "refused")


def environment() -> dict[str, str]:
    account = pwd.getpwuid(os.geteuid()) if _has_account() else None
    own = {"USER": account.pw_name, "LOGNAME": account.pw_name, "HOME": account.pw_dir} if account is not None else {}
    return {**own, **{name: os.environ[name] for name in KEPT if name in os.environ}, "LC_ALL": "C"}


def _has_account() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:  # a container's number without a name
        return False
    return True


async def run(*command: str, text: str = "") -> CommandResult:
    """`text`: what the command reads. Raises ProvisionerError if it did not end by itself."""
    try:
        with tempfile.TemporaryFile() as given:  # no pipe: one to a command that ends without reading is an error of uvloop's own
            given.write(text.encode())
            given.seek(0)
            process = await asyncio.create_subprocess_exec(
                *command, stdin=given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment(),
                cwd="/", start_new_session=True,
            )  # fmt: skip
    except FileNotFoundError:
        raise ProvisionerError(
            f"There is no {command[0]} where the launcher runs: install Slurm's commands there, or run it on a login node.",
            "refused",
        ) from None
    except OSError as error:
        raise ProvisionerError(f"{command[0]} cannot be started: {error.strerror or error}.", "unreachable") from error
    try:
        async with asyncio.timeout(COMMAND_SECONDS_MAX):
            output, errors = await process.communicate()
    except TimeoutError:
        raise ProvisionerError(f"{command[0]} did not end within {COMMAND_SECONDS_MAX:.0f} s.", "unreachable") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(Exception):
                await asyncio.shield(process.wait())
    return CommandResult(process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace"))


def succeeded(said: CommandResult, what: str) -> Sequence[str]:
    """Lines of the output. Raises ProvisionerError."""
    if said.code != 0:
        raise said.error(what)
    return said.output.splitlines()
