"""Slurm by its REST daemon, slurmrestd, where the launcher has no commands of Slurm: over a socket of this machine, or TLS.

The daemon says which versions of its interface it has; the newest one that is known here is taken. Up to v0.0.38 numbers are
plain; later each is an object that says whether it is set.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.slurm import jobs
from tenuto.services.launcher.adapters.provisioners.slurm.commands import MESSAGE_CHARACTERS_MAX, kind_of
from tenuto.services.launcher.adapters.provisioners.slurm.controller import ARRAY_INDEX_MAX, JobSubmission
from tenuto.services.launcher.adapters.provisioners.slurm.jobs import SlurmJob
from tenuto.services.launcher.adapters.provisioners.slurm.rest_bodies import body_of
from tenuto.services.launcher.adapters.provisioners.slurm.settings import RestSettings

logger = logging.getLogger(__name__)

REQUEST_SECONDS_MAX = 40.0
"""Longest time of one request, as of one of Slurm's commands."""
ANSWER_BYTES_MAX = 128 << 20
"""Largest answer: a hundred thousand jobs of a site, of which each has more than a kilobyte."""
TOKEN_BYTES_MAX = 8_192
VERSIONS = range(37, 45)
"""Last parts of the versions v0.0.N that are known."""
INVALID_JOB, ALREADY_DONE = 2017, 2021
"""Slurm's numbers for a job that it does not know, and one that has ended."""
NODES_MAX = 10_000
"""Most tasks of one array that are listed."""
CANCELS_MAX = 8
"""Most jobs that are ended at once: each is a request."""


class Rest:
    def __init__(self, settings: RestSettings, secrets: Path | None) -> None:
        self._settings, self._secrets = settings, secrets
        self._session: aiohttp.ClientSession | None = None
        self._version = 0
        """0: not yet known."""
        self._index_max = ARRAY_INDEX_MAX

    async def jobs(self) -> Sequence[SlurmJob]:
        token = await self._token()
        answer = await self._ask("GET", "jobs", token=token)
        _succeeded(answer, "list jobs", "unreachable")
        rows = answer.get("jobs")
        mine = user_of(token)
        return [
            job
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, dict) and (row.get("user_name") == mine if mine else row.get("user_id") == os.geteuid())
            for job in _jobs(row)
        ]

    async def submit(self, wanted: JobSubmission) -> str:
        version = await self.version()
        answer = await self._ask("POST", "job/submit", body_of(wanted, version))
        job = number_of(answer.get("job_id"))
        if job:  # errors beside it are remarks
            return str(job)
        try:
            _succeeded(answer, f"take job {wanted.name}")
        except ProvisionerError as error:
            if wanted.array and re.search("job array", str(error), re.IGNORECASE):
                self._index_max = 0
                raise ProvisionerError(f"{error} Nodes are jobs of their own from now on.", "unreachable") from None
            raise
        raise ProvisionerError(f"Slurm does not say the id of job {wanted.name}.", "unreachable")

    async def cancel(self, ids: Sequence[str]) -> None:
        slots = asyncio.Semaphore(CANCELS_MAX)

        async def one(job_id: str) -> None:
            async with slots:
                answer = await self._ask("DELETE", f"job/{job_id}")
                errors = [item for item in _errors(answer) if item[0] not in (INVALID_JOB, ALREADY_DONE)]
                _raise(errors, "end the job")

        done = await asyncio.gather(*(one(job_id) for job_id in ids), return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error

    async def array_index_max(self) -> int:
        return self._index_max

    async def partitions(self) -> Sequence[Mapping[str, Any]]:
        answer = await self._ask("GET", "partitions")
        _succeeded(answer, "show its partitions")
        found = answer.get("partitions")
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []

    async def version(self) -> int:
        """Last part of the newest version that is known on both sides."""
        if not self._version:
            answer = await self._request("GET", "/openapi/v3", await self._token())
            paths = answer.get("paths")
            said = {int(match[1]) for path in paths or () if (match := re.match(r"/slurm/v0\.0\.(\d{1,4})/jobs/?$", path))}
            known = sorted(said & set(VERSIONS))
            if not known:
                there = ", ".join(f"v0.0.{number}" for number in sorted(said)) or "no version"
                raise ProvisionerError(
                    f"slurmrestd has {there} of its interface, and v0.0.{VERSIONS[0]} to v0.0.{VERSIONS[-1]} are known here:"
                    " start it with one of these (`slurmrestd -s`).",
                    "refused",
                )
            self._version = known[-1]
        return self._version

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, method: str, path: str, body: object = None, token: str | None = None) -> dict[str, Any]:
        version = await self.version()
        given = await self._token() if token is None else token
        return await self._request(method, f"/slurm/v0.0.{version}/{path}", given, body)

    async def _request(self, method: str, path: str, token: str, body: object = None) -> dict[str, Any]:
        """Answer of whatever status. Raises ProvisionerError."""
        user = user_of(token)
        headers = {"X-SLURM-USER-TOKEN": token, **({"X-SLURM-USER-NAME": user} if user else {})} if token else {}
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                session = await self._open()
                url = self._settings.base + path
                async with session.request(method, url, json=body, headers=headers, allow_redirects=False) as answer:
                    status, text = answer.status, await answer.content.read(ANSWER_BYTES_MAX + 1)
                    while len(text) <= ANSWER_BYTES_MAX and (more := await answer.content.read(ANSWER_BYTES_MAX)):
                        text += more
        except TimeoutError:
            raise ProvisionerError(f"slurmrestd did not answer within {REQUEST_SECONDS_MAX:.0f} s.", "unreachable") from None
        except (aiohttp.ClientError, OSError) as error:
            words = visible(getattr(error, "strerror", None) or str(error) or type(error).__name__)[:MESSAGE_CHARACTERS_MAX]
            raise ProvisionerError(f"slurmrestd cannot be reached: {words}.", "unreachable") from None
        if status in (401, 403):
            remedy = f"put a new one into {self._settings.token}" if self._settings.token else "set restd_token"
            raise ProvisionerError(f"slurmrestd does not take the launcher's token: {remedy} (`scontrol token`).", "refused")
        try:
            found = json.loads(text) if len(text) <= ANSWER_BYTES_MAX else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ProvisionerError(f"slurmrestd answers what cannot be read (status {status}).", "unreachable")
        return found

    async def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector: aiohttp.BaseConnector
            if self._settings.socket:
                connector = aiohttp.UnixConnector(self._settings.socket)
            elif self._settings.ca:
                file = await asyncio.to_thread(self._file, self._settings.ca)
                connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=file))
            else:
                connector = aiohttp.TCPConnector()
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session

    async def _token(self) -> str:
        """Read anew for each request, so that one that ends can be replaced. Empty: the socket says who asks."""
        if not self._settings.token:
            return ""
        text = (await asyncio.to_thread(self._file, self._settings.token)).strip().removeprefix("SLURM_JWT=")
        if not re.fullmatch(r"[A-Za-z0-9_=-]+(\.[A-Za-z0-9_=-]+){2}", text):
            raise ProvisionerError(
                f"File {self._settings.token} has no token: write there what `scontrol token` prints.", "refused"
            )
        ends = claims_of(text).get("exp")
        if isinstance(ends, int | float) and ends < time.time():
            raise ProvisionerError(
                f"The token in {self._settings.token} has ended: put a new one there (`scontrol token lifespan=SECONDS`).",
                "refused",
            )
        return text

    def _file(self, name: str) -> str:
        try:
            if self._secrets is None:
                raise FileNotFoundError(2, "the launcher has no directory of secrets")
            with (self._secrets / name).open("rb") as file:
                return file.read(TOKEN_BYTES_MAX * 16).decode("ascii", "replace")
        except OSError as error:
            raise ProvisionerError(
                f"File {name} of the launcher's secrets cannot be read: {error.strerror}.", "refused"
            ) from None


def claims_of(token: str) -> dict[str, Any]:
    """Claims of a token, unverified: Slurm alone judges whether they are true. Empty if it cannot be decoded."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def user_of(token: str) -> str:
    """Account of a token; empty if it does not say."""
    name = claims_of(token).get("sun") or claims_of(token).get("username") or ""
    return name if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_.@-]{1,100}", name) else ""


def number_of(value: object) -> int | None:
    """None: it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _jobs(row: Mapping[str, Any]) -> list[SlurmJob]:
    """Nodes of one entry, which for tasks of an array that have not begun stands for all of them."""
    said = row.get("job_state")
    states = [str(item) for item in said] if isinstance(said, list) else [str(said)]
    state = "COMPLETING" if "COMPLETING" in states else states[0] if states else ""
    job_id, array_id = number_of(row.get("job_id")), number_of(row.get("array_job_id"))
    task, tasks = number_of(row.get("array_task_id")), str(row.get("array_task_string") or "")
    indexes: list[int | None] = [None]
    if array_id:
        indexes = [task] if task is not None and not tasks else [*_indexes(tasks)]
    words = (state, str(row.get("state_reason") or ""), str(row.get("nodes") or ""), str(row.get("comment") or ""))
    found = [jobs.job_of(str(array_id or job_id), index, *words) for index in indexes]
    return [job for job in found if job is not None]


def _indexes(text: str) -> list[int]:
    """Indexes in Slurm's notation, such as 0-3,7%2."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", part)
        if match is not None:
            end = int(match[2] or match[1])
            found += range(int(match[1]), min(end, int(match[1]) + NODES_MAX) + 1, int(match[3] or 1) or 1)
    return found[:NODES_MAX]


def _errors(answer: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Number and words of each."""
    rows = answer.get("errors")
    found = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            number = row.get("error_number", row.get("error_code", 0))
            texts = dict.fromkeys(str(row[name]) for name in ("description", "error") if row.get(name))
            found.append((number if isinstance(number, int) else 0, ": ".join(texts)))
    return found


def _succeeded(answer: Mapping[str, Any], what: str, kind: str = "") -> None:
    _raise(_errors(answer), what, kind)


def _raise(errors: Sequence[tuple[int, str]], what: str, kind: str = "") -> None:
    """Raises ProvisionerError if there are errors. `what`: end of the sentence "Slurm does not ...". `kind`: empty: the kind that
    the words of the errors imply."""
    if errors:
        words = visible("; ".join(dict.fromkeys(text for _, text in errors if text))[:MESSAGE_CHARACTERS_MAX]).rstrip(".")
        unreachable = kind == "unreachable"
        raise ProvisionerError(
            f"Slurm does not {what}: {words or 'without words'}.", "unreachable" if unreachable else kind_of(words)
        )
