"""A stand-in for the API of Compute Engine, as far as a provisioner uses it. It is held honest by Google's own client: requests
are read by its message classes, which refuse fields that they do not know, and answers are written by them. What the rules of
`compute_engine_rules.py` do not take is refused; operations fail late, as capacity does; faults come by a seed."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from aiohttp import web
from google.cloud import compute_v1

from tenuto.kernel.tasks import stop_task
from tests.support import compute_engine_rules as rules
from tests.support.compute_engine_catalog import named
from tests.support.compute_engine_messages import read, refused, written
from tests.support.compute_engine_rules import PROJECT, Wrong, missing
from tests.support.google_accounts import Account

PAGE_MAX = 500
ROOT = f"/compute/v1/projects/{PROJECT}"


@dataclass
class Faults:
    """Of requests to the API. `rate`: part of them."""

    rate: float = 0.0
    seed: int = 0
    kinds: tuple[str, ...] = ("before", "after", "cut", "page", "doubled", "late")
    late_seconds: float = 0.2

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def next(self) -> str:
        return self._random.choice(self.kinds) if self._random.random() < self.rate else ""


@dataclass
class ComputeEngine:
    """Started by `start`."""

    faults: Faults = field(default_factory=Faults)
    room: dict[str, int] = field(default_factory=dict)
    """Most instances of a zone; beyond it operations fail for want of capacity."""
    quotas: dict[str, float] = field(default_factory=lambda: dict(rules.QUOTAS))
    rights: set[str] | None = None
    """None: all."""
    operation_seconds: float = 0.05
    hidden: Counter[str] = field(default_factory=Counter)
    """By name of an instance: lists that do not show it yet."""
    hidden_lists: int = 0
    """The same for each new instance."""
    unreachable: set[str] = field(default_factory=set)
    """Zones that lists say nothing of."""
    page: int = PAGE_MAX
    boots: Callable[[compute_v1.Instance], Coroutine[Any, Any, None]] | None = None
    """Begins to run what the instance is to do."""
    console: Callable[[compute_v1.Instance], str] = lambda _: ""
    """What its serial port has printed."""
    shuts: Callable[[compute_v1.Instance], Coroutine[Any, Any, None]] | None = None
    """Shuts it down, and returns when nothing of it runs."""

    def __post_init__(self) -> None:
        self.instances: dict[tuple[str, str], compute_v1.Instance] = {}
        self.operations: dict[tuple[str, str], compute_v1.Operation] = {}
        self.guest: dict[str, dict[str, str]] = {}
        """By name of an instance: guest attributes."""
        self.asked: list[str] = []
        self.begun: list[str] = []
        """Names of all instances that there ever were."""
        self.url = ""
        self._by_request: dict[str, str] = {}
        self._numbers, self._tasks = count(1), set[asyncio.Task[None]]()
        self._account = Account()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=4 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        for task in list(self._tasks):
            await stop_task(task)

    def key_file(self) -> str:
        """A service account's, whose tokens this API takes."""
        return self._account.key_file(f"{self.url}/token")

    def names(self, zone: str = "") -> list[str]:
        return sorted(name for where, name in self.instances if zone in ("", where))

    def put(self, zone: str, item: compute_v1.Instance) -> None:
        """An instance that somebody else made."""
        self.instances[zone, item.name] = item

    def turned_off(self, zone: str, name: str) -> None:
        """It has shut itself down."""
        if (zone, name) in self.instances:
            item = self.instances[zone, name]
            item.status, item.last_stop_timestamp = "TERMINATED", datetime.now(UTC).isoformat()

    def lose(self, zone: str, name: str) -> None:
        """It is gone, as after a preemption with the action DELETE."""
        del self.instances[zone, name]

    # The door.

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return await self._account.token(request)
        self.asked.append(f"{request.method} {request.path}")
        fault = self.faults.next()
        if fault == "before":
            return refused(Wrong(503, "backendError", "Backend Error"))
        if fault == "redirect":
            return web.Response(status=302, headers={"Location": f"{self.url}/elsewhere"})
        response = await self._answer(request)
        if fault == "doubled":
            response = await self._answer(request)
        if fault == "late":
            await asyncio.sleep(self.faults.late_seconds)
        if fault == "after":
            return refused(Wrong(503, "backendError", "Backend Error"))
        if fault == "page":
            return web.Response(status=502, text="<html><title>502</title>Bad Gateway</html>", content_type="text/html")
        if fault == "cut" and request.transport is not None:
            request.transport.close()
        return response

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            if not self._account.admits(request.headers.get("Authorization", "")):
                raise Wrong(401, "required", "Login Required.")
            body = await request.text()
            if request.path == f"/v1/projects/{PROJECT}:testIamPermissions":
                given = compute_v1.TestPermissionsRequest.from_json(body)
                having = [item for item in given.permissions if self.rights is None or item in self.rights]
                return written(compute_v1.TestPermissionsResponse(permissions=having))
            for pattern, method, form, handle in ROUTES:
                match = re.fullmatch(pattern, request.path)
                if match and request.method == method:
                    return written(handle(self, read(form, match.groupdict(), request.query), body))
            raise missing(request.path)
        except Wrong as error:
            return refused(error)

    # Instances.

    def insert(self, given: Any, body: str) -> compute_v1.Operation:
        try:
            item = compute_v1.Instance.from_json(body, ignore_unknown_fields=False)
        except Exception as error:
            raise Wrong(400, "parseError", f"Invalid JSON payload received. {error}") from None
        zone = self._zone(given.zone)
        rules.check_request_id(given.request_id)
        if given.request_id in self._by_request:
            return self.operations[zone, self._by_request[given.request_id]]
        rules.check_instance(zone, item)
        if self.rights is not None and "compute.instances.create" not in self.rights:
            raise Wrong(403, "forbidden", f"Required 'compute.instances.create' permission for '{ROOT}/zones/{zone}'")
        if (zone, item.name) in self.instances:
            raise Wrong(409, "alreadyExists", f"The resource '{ROOT}/zones/{zone}/instances/{item.name}' already exists")
        self._check_quota(zone, item)
        full = sum(where == zone for where, _ in self.instances) >= self.room.get(zone, 1_000_000)
        item.id, item.zone, item.status = next(self._numbers), f"{self.url}{ROOT}/zones/{zone}", "PROVISIONING"
        item.creation_timestamp = datetime.now(UTC).isoformat()
        self.instances[zone, item.name] = item
        self.begun.append(item.name)
        self.hidden[item.name] = max(self.hidden[item.name], self.hidden_lists)
        operation = self._operation(zone, "insert", self._started(zone, item, full))
        if given.request_id:
            self._by_request[given.request_id] = operation.name
        return operation

    def delete(self, given: Any, body: str) -> compute_v1.Operation:
        item = self.get(given, body)
        if item.status in ("STOPPING", "DEPROVISIONING"):
            raise Wrong(400, "resourceNotReady", f"The resource '{item.name}' is not ready")
        item.status = "STOPPING"
        return self._operation(given.zone, "delete", self._ended(given.zone, item))

    def get(self, given: Any, _: str) -> compute_v1.Instance:
        found = self.instances.get((self._zone(given.zone), given.instance))
        if found is None:
            raise missing(f"{ROOT}/zones/{given.zone}/instances/{given.instance}")
        return found

    def list(self, given: Any, _: str) -> compute_v1.InstanceAggregatedList:
        found = [
            (zone, item)
            for (zone, _), item in sorted(self.instances.items())
            if rules.matches(given.filter, item) and zone not in self.unreachable and not self._hides(item.name)
        ]
        begin, most = int(given.page_token or 0), min(given.max_results or PAGE_MAX, self.page)
        answer = compute_v1.InstanceAggregatedList(kind="compute#instanceAggregatedList")
        for zone in rules.ZONES:
            here = [item for where, item in found[begin : begin + most] if where == zone]
            scope = compute_v1.InstancesScopedList(instances=here)
            if not here:
                code = "UNREACHABLE" if zone in self.unreachable else "NO_RESULTS_ON_PAGE"
                scope.warning = compute_v1.Warning(code=code, message=f"There are no results for scope 'zones/{zone}'.")
            answer.items[f"zones/{zone}"] = scope
        if begin + most < len(found):
            answer.next_page_token = str(begin + most)
        return answer

    def _hides(self, name: str) -> bool:
        self.hidden[name] -= 1
        return self.hidden[name] >= 0

    def serial_port(self, given: Any, body: str) -> compute_v1.SerialPortOutput:
        item = self.get(given, body)
        if item.status not in ("RUNNING", "STOPPING"):
            raise Wrong(400, "resourceNotReady", f"The resource '{item.name}' is not ready")
        text = self.console(item)
        begin = max(0, len(text) + given.start) if given.start < 0 else given.start
        return compute_v1.SerialPortOutput(contents=text[begin:], start=begin, next_=len(text))

    def guest_attributes(self, given: Any, body: str) -> compute_v1.GuestAttributes:
        item = self.get(given, body)
        if not any((entry.key, entry.value) == ("enable-guest-attributes", "TRUE") for entry in item.metadata.items):
            raise Wrong(412, "conditionNotMet", "Guest attributes endpoint access is disabled.")
        left = self.guest.get(item.name, {})
        entries = [
            compute_v1.GuestAttributesEntry(namespace=path.partition("/")[0], key=path.partition("/")[2], value=value)
            for path, value in sorted(left.items())
            if path == given.query_path or (given.query_path.endswith("/") and path.startswith(given.query_path))
        ]
        if not entries:
            raise missing(f"guestAttributes/{given.query_path}")
        return compute_v1.GuestAttributes(query_path=given.query_path, query_value=compute_v1.GuestAttributesValue(items=entries))

    def _check_quota(self, zone: str, item: compute_v1.Instance) -> None:
        used = self.usage(rules.region_of(zone))
        wanted = Counter({"CPUS": rules.MACHINE_TYPES[item.machine_type.rpartition("/")[2]], "INSTANCES": 1})
        for metric, amount in wanted.items():
            if used[metric] + amount > self.quotas[metric]:
                raise Wrong(403, "quotaExceeded", f"Quota '{metric}' exceeded. Limit: {self.quotas[metric]} in region.")

    def usage(self, region: str) -> Counter[str]:
        there = [item for (zone, _), item in self.instances.items() if rules.region_of(zone) == region]
        cpus = sum(rules.MACHINE_TYPES[item.machine_type.rpartition("/")[2]] for item in there)
        return Counter({"CPUS": cpus, "INSTANCES": len(there)})

    def _zone(self, zone: str) -> str:
        if zone not in rules.ZONES:
            raise Wrong(400, "invalid", f"Invalid value for field 'zone': '{zone}'. Unknown zone.")
        return zone

    # Operations.

    def operation(self, given: Any, _: str) -> compute_v1.Operation:
        found = self.operations.get((given.zone, given.operation))
        if found is None:
            raise missing(f"{ROOT}/zones/{given.zone}/operations/{given.operation}")
        return found

    def _operation(self, zone: str, kind: str, work: Coroutine[Any, Any, tuple[str, str] | None]) -> compute_v1.Operation:
        made = compute_v1.Operation(
            name=f"operation-{next(self._numbers)}", operation_type=kind, status=compute_v1.Operation.Status.RUNNING,
            zone=f"{self.url}{ROOT}/zones/{zone}",
        )  # fmt: skip
        self.operations[zone, made.name] = made

        async def run() -> None:
            await asyncio.sleep(self.operation_seconds)
            failure = await work
            if failure is not None:
                code, message = failure
                made.error = compute_v1.Error(errors=[compute_v1.Errors(code=code, message=message)])
                made.http_error_status_code, made.http_error_message = 503, "SERVICE UNAVAILABLE"
            made.status = compute_v1.Operation.Status.DONE

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    async def _started(self, zone: str, item: compute_v1.Instance, full: bool) -> tuple[str, str] | None:
        if self.instances.get((zone, item.name)) is not item:
            return "RESOURCE_NOT_FOUND", f"The resource '{item.name}' was not found"
        if full:
            del self.instances[zone, item.name]
            return (
                "ZONE_RESOURCE_POOL_EXHAUSTED",
                f"The zone '{ROOT}/zones/{zone}' does not have enough resources available to fulfill the request.",
            )
        if item.status == "PROVISIONING":
            item.status = "RUNNING"
            if self.boots is not None:
                await self.boots(item)
        return None

    async def _ended(self, zone: str, item: compute_v1.Instance) -> None:
        if self.shuts is not None:
            await self.shuts(item)
        self.instances.pop((zone, item.name), None)


def _look_up(kind: str, parameter: str, prefix: str = "") -> Callable[[ComputeEngine, Any, str], Any]:
    return lambda engine, given, _: named(kind, prefix + getattr(given, parameter), engine.quotas, engine.usage)


_P = r"/compute/v1/projects/(?P<project>[^/]+)"
_Z = _P + r"/zones/(?P<zone>[^/]+)"
_R = _P + r"/regions/(?P<region>[^/]+)"
_I = _Z + r"/instances/(?P<instance>[^/]+)"
ROUTES: list[tuple[str, str, Any, Callable[[ComputeEngine, Any, str], Any]]] = [
    (_P, "GET", compute_v1.GetProjectRequest, _look_up("projects", "project")),
    (_P + "/aggregated/instances", "GET", compute_v1.AggregatedListInstancesRequest, ComputeEngine.list),
    (_Z + "/instances", "POST", compute_v1.InsertInstanceRequest, ComputeEngine.insert),
    (_I, "GET", compute_v1.GetInstanceRequest, ComputeEngine.get),
    (_I, "DELETE", compute_v1.DeleteInstanceRequest, ComputeEngine.delete),
    (_I + "/serialPort", "GET", compute_v1.GetSerialPortOutputInstanceRequest, ComputeEngine.serial_port),
    (_I + "/getGuestAttributes", "GET", compute_v1.GetGuestAttributesInstanceRequest, ComputeEngine.guest_attributes),
    (_Z + "/operations/(?P<operation>[^/]+)", "GET", compute_v1.GetZoneOperationRequest, ComputeEngine.operation),
    (_Z, "GET", compute_v1.GetZoneRequest, _look_up("zones", "zone")),
    (_R, "GET", compute_v1.GetRegionRequest, _look_up("regions", "region")),
    (_Z + "/machineTypes/(?P<machineType>[^/]+)", "GET", compute_v1.GetMachineTypeRequest,
     _look_up("machineTypes", "machine_type")),
    (_Z + "/acceleratorTypes/(?P<acceleratorType>[^/]+)", "GET", compute_v1.GetAcceleratorTypeRequest,
     _look_up("acceleratorTypes", "accelerator_type")),
    (_Z + "/diskTypes/(?P<diskType>[^/]+)", "GET", compute_v1.GetDiskTypeRequest, _look_up("diskTypes", "disk_type")),
    (_P + "/global/images/family/(?P<family>[^/]+)", "GET", compute_v1.GetFromFamilyImageRequest,
     _look_up("images", "family", "family/")),
    (_P + "/global/images/(?P<image>[^/]+)", "GET", compute_v1.GetImageRequest, _look_up("images", "image")),
    (_P + "/global/networks/(?P<network>[^/]+)", "GET", compute_v1.GetNetworkRequest, _look_up("networks", "network")),
    (_R + "/subnetworks/(?P<subnetwork>[^/]+)", "GET", compute_v1.GetSubnetworkRequest,
     _look_up("subnetworks", "subnetwork")),
]  # fmt: skip
