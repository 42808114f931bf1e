"""EC2 for tests: moto's server behind a proxy that closes its gaps (ClientToken, capacity, unknown images, consoles, machines
that end) and brings about what EC2 brings about: answers that come late or never, requests that are done twice, instances that
are not shown yet or are gone. Where that is asked for, instances are stand-ins that run their user data as processes here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import secrets
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree

import aiohttp
from aiohttp import web

from tests.support.cloud_machine import Machine
from tests.support.moto_server import REGION, client, linux_image, moto_url

__all__ = ["CREDENTIALS", "REGION", "ZONE", "Ec2", "Faults", "client", "linux_image", "running"]
ZONE = "us-east-1a"
CREDENTIALS = "[default]\naws_access_key_id = AKIATESTS\naws_secret_access_key = the-secret-key-of-the-tests\n"
END_SECONDS_MAX = 40.0
LOOK_SECONDS = 0.05
XML = "http://ec2.amazonaws.com/doc/2016-11-15/"


@dataclass
class Faults:
    """What happens to requests that change or list instances. `rates`: of failure before it is done, failure after it was done
    (so that nobody learns of it), doing it twice, and an answer that comes late."""

    seed: int = 0
    before: float = 0.0
    after: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    late_seconds: float = 0.3
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)


class Ec2:
    """`async with running(...)` starts it. Change its attributes at will."""

    def __init__(self, machines: Path | None, **environment: str) -> None:
        """`machines`: directory in which instances run their user data, with this environment. None: nothing runs."""
        self._machines, self._environment = machines, environment
        self.room: int | None = None
        """Most instances that live at once; None: any number."""
        self.full: set[str] = set()
        """Zones, subnets and markets (`spot`) without capacity."""
        self.errors: dict[str, tuple[str, str]] = {}
        """By action: code and message of each answer."""
        self.answers: dict[str, str] = {}
        """By action: the document that is answered."""
        self.lost: set[str] = set()
        """Actions that are done, and then answered by an error."""
        self.faults = Faults()
        self.hidden_seconds = 0.0
        """Time for which an instance is not shown after its start."""
        self.asked: list[str] = []
        self.requests: dict[str, dict[str, str]] = {}
        """By instance: the request that it was started by."""
        self.keeps_answers = False
        """True: moto is asked anew which instances there are only after a change. A list of some dozens takes it a quarter of a
        second of a processor."""
        self._changes, self._kept = 0, dict[str, tuple[int, tuple[int, str, bytes]]]()
        """Changes that are done, and answers by question, each with the number of changes before it was asked for."""
        self.consoles: dict[str, str] = {}
        self.running: dict[str, Machine] = {}
        self._tokens: dict[str, tuple[dict[str, str], bytes]] = {}
        self._begun_at: dict[str, float] = {}
        self._ending: set[str] = set()
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.cluster = f"cluster-{secrets.token_hex(4)}"
        """For the tags of one test's instances: moto has those of all."""

    # What tests ask and do.

    def live(self) -> list[str]:
        """Instances of this proxy that are paid for."""
        paid = [{"Name": "instance-state-name", "Values": ["pending", "running", "shutting-down", "stopping", "stopped"]}]
        pages = client().get_paginator("describe_instances").paginate(Filters=paid)
        found = [item for page in pages for reservation in page["Reservations"] for item in reservation["Instances"]]
        return [item["InstanceId"] for item in found if item["InstanceId"] in self.requests]

    def tags(self, instance_id: str) -> dict[str, str]:
        [reservation] = client().describe_instances(InstanceIds=[instance_id])["Reservations"]
        return {item["Key"]: item["Value"] for item in reservation["Instances"][0]["Tags"]}

    async def repeat(self, instance_id: str) -> str:
        """Another instance by the same request."""
        body = await self._run({key: value for key, value in self.requests[instance_id].items() if key != "ClientToken"}, {})
        return _ids(body)[0]

    async def lose(self, instance_id: str) -> None:
        """It is gone at once, and nobody was told."""
        if machine := self.running.get(instance_id):
            machine.kill()
        await self._terminate(instance_id)

    # The door.

    async def start(self) -> None:
        await asyncio.to_thread(moto_url)
        self._session = aiohttp.ClientSession()
        app = web.Application(client_max_size=1 << 22)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for machine in self.running.values():
            machine.kill()
        await self._runner.cleanup()
        await self._session.close()
        if left := await asyncio.to_thread(self.live):
            await asyncio.to_thread(client().terminate_instances, InstanceIds=left)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        form = dict(parse_qsl(body.decode(), keep_blank_values=True)) if b"Action=" in body else {}
        action = form.get("Action", "")
        self.asked.append(action)
        if error := self.errors.get(action):
            return _refusal(*error)
        if action in self.answers:
            return _plain(200, "text/xml", self.answers[action].encode())
        headers = {key: value for key, value in request.headers.items() if key.lower() not in ("host", "content-length")}
        if action not in ("RunInstances", "TerminateInstances", "DescribeInstances", "GetConsoleOutput"):
            return _plain(*await self._forward(body, headers, request.path_qs))
        draw = self.faults.random.random
        before, after, twice, late = (
            draw() < rate for rate in (self.faults.before, self.faults.after, self.faults.twice, self.faults.late)
        )
        if before:
            return _refusal("RequestLimitExceeded", "Request limit exceeded.", 503)
        answer = await self._do(form, headers)
        if twice:
            answer = await self._do(form, headers)
        if late:
            await asyncio.sleep(self.faults.late_seconds)
        if after or action in self.lost:
            return _refusal("InternalError", "An internal error has occurred.", 500)
        return answer

    async def _do(self, form: dict[str, str], headers: dict[str, str]) -> web.Response:
        action = form["Action"]
        if action == "RunInstances":
            try:
                return _plain(200, "text/xml", await self._run(form, headers))
            except _Refused as error:
                return _refusal(*error.args)
        if action == "TerminateInstances":
            ids = [value for key, value in form.items() if key.startswith("InstanceId")]
            for instance_id in ids:
                if instance_id not in self.requests:
                    return _refusal("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
                self._ending.add(instance_id)
                if instance_id not in self.running:
                    await self._terminate(instance_id)
            items = "".join(f"<item><instanceId>{item}</instanceId></item>" for item in ids)
            text = f'<TerminateInstancesResponse xmlns="{XML}"><instancesSet>{items}</instancesSet></TerminateInstancesResponse>'
            return _plain(200, "text/xml", text.encode())
        if action == "GetConsoleOutput":
            found = self.running.get(form["InstanceId"])
            text = found.console() if found is not None else self.consoles.get(form["InstanceId"], "")
            output = base64.b64encode(text.encode()[-65_536:]).decode()
            text = f'<GetConsoleOutputResponse xmlns="{XML}"><output>{output}</output></GetConsoleOutputResponse>'
            return _plain(200, "text/xml", text.encode())
        question, changes = urlencode(form), self._changes
        kept_at, answer = self._kept.get(question, (-1, (0, "", b"")))
        if not self.keeps_answers or kept_at != changes:
            answer = await self._forward(question.encode(), headers, "/")
            self._kept[question] = changes, answer
        status, kind, body = answer
        return _plain(status, kind, self._without_hidden(body) if status == 200 else body)

    async def _run(self, form: dict[str, str], headers: dict[str, str]) -> bytes:
        """Raises _Refused."""
        async with self._starting:
            return await self._run_alone(form, headers)

    async def _run_alone(self, form: dict[str, str], headers: dict[str, str]) -> bytes:
        token = form.get("ClientToken", "")
        if token in self._tokens:
            if self._tokens[token][0] != form:
                raise _Refused(
                    "IdempotentParameterMismatch",
                    "The request uses the same client token as a previous, but non-identical request.",
                )
            return self._tokens[token][1]
        if form.get("DryRun") == "true":
            raise _Refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        image = form["ImageId"]
        if not await asyncio.to_thread(_has_image, image):
            raise _Refused("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
        place = form.get("SubnetId") or form.get("Placement.AvailabilityZone") or ZONE
        is_full = self.room is not None and len(await asyncio.to_thread(self.live)) >= self.room
        if is_full or {place, form.get("InstanceMarketOptions.MarketType")} & self.full:
            raise _Refused(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {form['InstanceType']} capacity in {place}.",
                500,
            )
        status, _, body = await self._forward(
            urlencode({key: value for key, value in form.items() if key != "ClientToken"}).encode(), headers or HEADERS, "/"
        )
        if status != 200:
            raise _Refused("InvalidParameterValue", body.decode()[-300:])
        [instance_id] = _ids(body)
        self.requests[instance_id], self._begun_at[instance_id] = form, time.monotonic()
        self._changes += 1
        if token:
            self._tokens[token] = form, body
        if self._machines is not None:
            machine = self.running[instance_id] = Machine(self._machines / instance_id)
            task = asyncio.create_task(self._live(instance_id, machine, base64.b64decode(form["UserData"]).decode()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return body

    def _without_hidden(self, body: bytes) -> bytes:
        now = time.monotonic()
        hidden = {key for key, at in self._begun_at.items() if now - at < self.hidden_seconds}
        if not hidden:
            return body
        root = ElementTree.fromstring(body)
        ElementTree.register_namespace("", root.tag[1:].partition("}")[0])
        for reservations in root.iterfind(".//{*}reservationSet"):
            for item in list(reservations):
                if {found.text for found in item.iterfind(".//{*}instanceId")} & hidden:
                    reservations.remove(item)
        return ElementTree.tostring(root)

    async def _live(self, instance_id: str, machine: Machine, script: str) -> None:
        here = script.replace("\ndirectory=/var/lib/tenuto\n", f"\ndirectory={machine.directory}/state\n")  # a disk of its own
        process = await machine.boot(here, **self._environment)
        ended = asyncio.create_task(process.wait())
        while not ended.done() and instance_id not in self._ending:
            await asyncio.wait({ended}, timeout=LOOK_SECONDS)
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            await asyncio.wait({ended}, timeout=END_SECONDS_MAX)
        machine.kill()
        await ended
        await self._terminate(instance_id)

    async def _terminate(self, instance_id: str) -> None:
        await asyncio.to_thread(client().terminate_instances, InstanceIds=[instance_id])
        self._changes += 1

    async def _forward(self, body: bytes, headers: dict[str, str], path: str) -> tuple[int, str, bytes]:
        async with self._session.post(moto_url() + path, data=body, headers=headers) as answer:
            return answer.status, answer.content_type, await answer.read()


class _Refused(Exception):
    """args: code, message, status."""


HEADERS = {
    "Content-Type": "application/x-www-form-urlencoded",
    "Authorization": f"AWS4-HMAC-SHA256 Credential=x/20260101/{REGION}/ec2/aws4_request, SignedHeaders=host, Signature=0",
}


def _ids(body: bytes) -> list[str]:
    return [str(found.text) for found in ElementTree.fromstring(body).iterfind(".//{*}instanceId")]


def _has_image(image: str) -> bool:
    try:
        return bool(client().describe_images(ImageIds=[image])["Images"])
    except client().exceptions.ClientError:
        return False


def _plain(status: int, kind: str, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type=kind)


def _refusal(code: str, message: str, status: int = 400) -> web.Response:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    text = f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"
    return web.Response(status=status, text=text, content_type="text/xml")


@asynccontextmanager
async def running(machines: Path | None = None, **environment: str) -> AsyncIterator[Ec2]:
    made = Ec2(machines, **environment)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
