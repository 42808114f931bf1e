"""Takes a submission in: the configuration and the packed model directory, as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from dataclasses import dataclass

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from tenuto.kernel.core import Refused
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.entrypoint import no_trial_in, script_of, standard_module
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.schemas.config.yaml_text import CONFIG_BYTES_MAX
from tenuto.schemas.record import Origin
from tenuto.schemas.text import unacceptable
from tenuto.services.gateway.experiments.adapters.contexts import ContextRefused, Incoming, StoredContext
from tenuto.services.gateway.experiments.door import ExperimentsDoor
from tenuto.services.gateway.http.context import asking
from tenuto.services.gateway.http.multipart import MultipartError, PartBegins, PartData, boundary_of, parts
from tenuto.services.gateway.templates.handling import Resolution, resolve

ORIGIN_BYTES_MAX = 1 << 20
"""A git diff is cut by the sender; this holds it with all else that tells where a submission came from."""
DRAIN_BYTES_MAX = 1 << 30
DRAIN_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class ResolvedSubmission:
    resolved: Resolution
    context: StoredContext
    origin: Origin | None = None


async def receive(request: Request, door: ExperimentsDoor) -> ResolvedSubmission:
    """Raises MultipartError, ConfigError, ContextRefused and Refused. What was refused leaves nothing on the shared directory."""
    try:
        return await _receive(request, door)
    except (MultipartError, ConfigError, ContextRefused, Refused):
        await _drain(request)
        raise


async def _drain(request: Request) -> None:
    """Takes the rest of the body, within bounds: a client that is still sending would see a broken connection, not the answer."""
    taken_bytes = 0
    with contextlib.suppress(ClientDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            async for chunk in request.stream():
                taken_bytes += len(chunk)
                if taken_bytes > DRAIN_BYTES_MAX:
                    return


async def _receive(request: Request, door: ExperimentsDoor) -> ResolvedSubmission:
    with Incoming(door.contexts, door.settings.context_bytes_max) as incoming:
        boundary = boundary_of(request.headers.get("content-type", ""))
        taken = _SubmissionParts(incoming)
        resolved: Resolution | None = None
        try:
            async for piece in parts(request.stream(), boundary):
                if isinstance(piece, PartBegins):
                    taken.begin(piece.name)
                elif isinstance(piece, PartData):
                    taken.add(piece.data)
                elif taken.name == "config":
                    resolved = await resolve(door, bytes(taken.config))  # before a large archive is taken in
        except ClientDisconnect:
            raise MultipartError("the client went away in the middle of it") from None
        if resolved is None:
            raise MultipartError("it has no part `config`, the configuration as YAML or JSON text")
        context = await incoming.store(lambda path: door.reader.archive(path, asking()))
        _check_entrypoint(resolved.config, context)
        return ResolvedSubmission(resolved, context, _origin(bytes(taken.origin)))


class _SubmissionParts:
    """Parts of a submission as they come in: the small ones are kept in memory, within bounds; `context` is passed on."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self.name = ""
        """Name of the part that comes at present."""
        self._names: set[str] = set()
        self.config, self.origin = bytearray(), bytearray()

    def begin(self, name: str) -> None:
        if name in self._names:
            raise MultipartError(f"it has the part {name!r} twice")
        if name not in ("config", "context", "origin"):
            raise MultipartError(f"it has a part {name!r}; the parts are `config`, `context` and `origin`")
        self.name = name
        self._names.add(name)

    def add(self, data: bytes) -> None:
        if self.name == "config":
            self.config += data
            if len(self.config) > CONFIG_BYTES_MAX:
                raise ConfigError([Problem("", f"the configuration is longer than {CONFIG_BYTES_MAX} bytes")])
        elif self.name == "origin":
            self.origin += data
            if len(self.origin) > ORIGIN_BYTES_MAX:
                raise MultipartError(f"its part `origin` is longer than {ORIGIN_BYTES_MAX} bytes")
        else:
            self._incoming.write(data)


def _origin(text: bytes) -> Origin | None:
    if not text:
        return None
    try:
        origin = Origin.from_json(text)
    except ValidationError as error:
        raise MultipartError(f"its part `origin` cannot be read: {error.errors()[0]['msg']}") from error
    if (found := unacceptable(origin.model_dump())) is not None:
        raise MultipartError(f"its part `origin` cannot be stored: {found[0]} {found[1]}")
    return origin


def _check_entrypoint(config: ExperimentConfig, context: StoredContext) -> None:
    """Finds a mistyped module now, and not after a worker was started. A module that is installed is as good."""
    script = script_of(config.entrypoint)
    if script is not None and script.file is not None:
        if script.file.partition("/")[0] in context.top_level:
            return
        names = ", ".join(sorted(name for name in context.top_level if name.endswith(".py"))) or "no Python file"
        message = f"there is no {script.file} in the model directory; it has {names}"
        raise ConfigError([Problem("entrypoint", message, f'"{config.entrypoint}"')])
    module = script.module if script is not None and script.module is not None else config.entrypoint.partition(":")[0]
    if (standard := standard_module(config.entrypoint)) and (
        standard in sys.builtin_module_names or not context.has_module(module)
    ):
        raise ConfigError([Problem("entrypoint", no_trial_in(standard), f'"{config.entrypoint}"')])
    if context.has_module(module) or importlib.util.find_spec(module.partition(".")[0]) is not None:
        return
    top = module.partition(".")[0]
    names = ", ".join(sorted(name for name in context.top_level if name.endswith(".py"))) or "no Python file"
    raise ConfigError(
        [
            Problem(
                "entrypoint", f"there is no {top}.py or {top}/ in the model directory; it has {names}", f'"{config.entrypoint}"'
            )
        ]
    )
