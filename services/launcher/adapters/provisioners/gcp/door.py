"""Compute Engine, asked through Google's own client: each question bounded in time and size, in threads, and never repeated here.

Imported late, in a thread: the client takes seconds to load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import google.auth
import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1
from google.oauth2 import service_account
from requests.adapters import HTTPAdapter

from tenuto.services.launcher.adapters.provisioners.gcp.machines import LEFT, ComputeInstance, Words, time_of
from tenuto.services.launcher.adapters.provisioners.gcp.refusals import (
    ComputeEngineRefusal,
    ComputeEngineUnreachable,
    NoCredentials,
    shown,
)
from tenuto.services.launcher.adapters.provisioners.gcp.settings import ComputeEngineConnection

ANSWER_SECONDS_MAX = 30.0
"""Longest wait for one answer; lists over all zones take some seconds."""
ANSWER_BYTES_MAX = 64 << 20
"""Largest answer that is read: a page of 500 instances has about 10 MB, most of it their startup scripts."""
THREADS = 8
"""Questions of one pool at once: Google limits a project to some thousand a minute, and others use it, too."""
PAGE = 500
PAGES_MAX = 20
"""Most pages: ten times what a pool may have."""
SCOPES = ("https://www.googleapis.com/auth/compute", "https://www.googleapis.com/auth/cloud-platform")
RIGHTS_ADDRESS = "https://cloudresourcemanager.googleapis.com"
LOG_BYTES_MAX = 1 << 18
"""Most of a serial port's output that is read."""

T = TypeVar("T")


class ComputeEngineClient:
    """Opened by `open_door`. Its methods raise ComputeEngineRefusal, ComputeEngineUnreachable and NoCredentials."""

    def __init__(self, connection: ComputeEngineConnection, secrets_directory: Path | None) -> None:
        self.project, self._connection, self._secrets = connection.project, connection, secrets_directory
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="gcp")
        self._credentials: Any = None
        self._clients: dict[type, Any] = {}
        self._opening = asyncio.Lock()

    @property
    def address(self) -> str:
        return self._connection.endpoint or "https://compute.googleapis.com"

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Instances.

    async def insert(self, zone: str, instance: dict[str, Any], request_id: str) -> str:
        """Name of the operation, which may still fail."""
        request = compute_v1.InsertInstanceRequest(
            project=self.project, zone=zone, instance_resource=compute_v1.Instance(instance), request_id=request_id
        )
        return str((await self._ask(compute_v1.InstancesClient, "insert_unary", request)).name)

    async def is_over(self, zone: str, operation: str) -> bool:
        """True if the operation is done. Raises ComputeEngineRefusal also if the operation failed."""
        request = compute_v1.GetZoneOperationRequest(project=self.project, zone=zone, operation=operation)
        try:
            found = await self._ask(compute_v1.ZoneOperationsClient, "get", request)
        except ComputeEngineRefusal as error:
            raise ComputeEngineUnreachable(str(error)) from None  # of the question, not of what was asked for before
        failure = _failure(found)
        if failure is not None:
            raise failure
        return bool(found.status == compute_v1.Operation.Status.DONE)

    async def machine(self, zone: str, name: str) -> ComputeInstance:
        request = compute_v1.GetInstanceRequest(project=self.project, zone=zone, instance=name)
        return _machine(await self._ask(compute_v1.InstancesClient, "get", request))

    async def machines(self, filter_text: str) -> list[ComputeInstance]:
        """Machines in all zones, also in those that the pool named earlier. An answer that leaves out a zone is an error:
        machines missing in it would be taken for lost."""
        after, found = "", list[ComputeInstance]()
        for _ in range(PAGES_MAX):
            request = compute_v1.AggregatedListInstancesRequest(
                project=self.project, filter=filter_text, max_results=PAGE, page_token=after
            )
            page = await self._ask(compute_v1.InstancesClient, "aggregated_list", request, _first_page)
            if page.unreachables:
                raise ComputeEngineUnreachable(f"it does not know now what is in {', '.join(sorted(page.unreachables))[:200]}")
            for where, scope in page.items.items():
                if scope.warning.code == "UNREACHABLE":
                    raise ComputeEngineUnreachable(f"it does not know now what is in {where}")
                found += [_machine(item) for item in scope.instances]
            after = page.next_page_token
            if not after:
                return found
        raise ComputeEngineUnreachable(f"it has more than {PAGES_MAX * PAGE} such instances")

    async def delete(self, project: str, zone: str, name: str) -> None:
        request = compute_v1.DeleteInstanceRequest(project=project, zone=zone, instance=name)
        await self._ask(compute_v1.InstancesClient, "delete_unary", request)

    async def serial_output(self, project: str, zone: str, name: str) -> str:
        request = compute_v1.GetSerialPortOutputInstanceRequest(
            project=project, zone=zone, instance=name, port=1, start=-LOG_BYTES_MAX
        )
        return str((await self._ask(compute_v1.InstancesClient, "get_serial_port_output", request)).contents)

    async def words(self, project: str, zone: str, name: str) -> Words:
        """Log and reason that the machine left in its guest attributes."""
        request = compute_v1.GetGuestAttributesInstanceRequest(project=project, zone=zone, instance=name, query_path=LEFT)
        try:
            found = await self._ask(compute_v1.InstancesClient, "get_guest_attributes", request)
        except ComputeEngineRefusal as error:
            if error.status == 404:
                return Words()
            raise
        values = {item.key: str(item.value) for item in found.query_value.items}
        return Words(values.get("log", ""), values.get("why", ""))

    # What a check asks for.

    async def named(self, client: str, **request: Any) -> Any:
        """Description of one thing, such as `named("Zones", zone=...)`."""
        made = {
            "Projects": (compute_v1.ProjectsClient, "get", compute_v1.GetProjectRequest),
            "Zones": (compute_v1.ZonesClient, "get", compute_v1.GetZoneRequest),
            "Regions": (compute_v1.RegionsClient, "get", compute_v1.GetRegionRequest),
            "MachineTypes": (compute_v1.MachineTypesClient, "get", compute_v1.GetMachineTypeRequest),
            "AcceleratorTypes": (compute_v1.AcceleratorTypesClient, "get", compute_v1.GetAcceleratorTypeRequest),
            "DiskTypes": (compute_v1.DiskTypesClient, "get", compute_v1.GetDiskTypeRequest),
            "Images": (compute_v1.ImagesClient, "get", compute_v1.GetImageRequest),
            "ImageFamilies": (compute_v1.ImagesClient, "get_from_family", compute_v1.GetFromFamilyImageRequest),
            "Networks": (compute_v1.NetworksClient, "get", compute_v1.GetNetworkRequest),
            "Subnetworks": (compute_v1.SubnetworksClient, "get", compute_v1.GetSubnetworkRequest),
        }
        kind, method, form = made[client]
        return await self._ask(kind, method, form(**{"project": self.project, **request}))

    async def rights(self, wanted: Sequence[str]) -> set[str]:
        """Rights among `wanted` that the launcher's account has in the project, by the API of projects (Resource Manager)."""
        address = self._connection.endpoint or RIGHTS_ADDRESS

        def ask() -> set[str]:
            session = AuthorizedSession(self._credentials)  # type: ignore[no-untyped-call]
            _bound(session)
            answer = session.post(
                f"{address}/v1/projects/{self.project}:testIamPermissions",
                json={"permissions": list(wanted)},
                timeout=ANSWER_SECONDS_MAX,
                allow_redirects=False,
            )
            if answer.status_code != 200:
                raise ComputeEngineRefusal(answer.status_code, "", _words(answer))
            return set(answer.json().get("permissions") or ())

        await self._open()
        return await self._thread(ask)

    # How it is asked.

    async def _ask(self, kind: type, method: str, request: Any, then: Callable[[Any], T] | None = None) -> Any:
        await self._open()

        def ask() -> Any:
            if kind not in self._clients:
                options = {"api_endpoint": self._connection.endpoint} if self._connection.endpoint else None
                client = kind(credentials=self._credentials, client_options=options)
                _bound(client.transport._session)
                self._clients[kind] = client
            # No retries of the client's own: they would go on for ten minutes, in a thread that is no longer awaited.
            answer = getattr(self._clients[kind], method)(request=request, timeout=ANSWER_SECONDS_MAX, retry=None)
            return then(answer) if then else answer

        return await self._thread(ask)

    async def _open(self) -> None:
        async with self._opening:
            if self._credentials is None:
                self._credentials = await self._thread(self._load)

    def _load(self) -> Any:
        name = self._connection.credentials_file
        if not name:
            try:
                return google.auth.default(scopes=SCOPES)[0]
            except DefaultCredentialsError:
                raise NoCredentials(
                    "The launcher has no credentials of Google: run it on a machine with a service account, set"
                    " GOOGLE_APPLICATION_CREDENTIALS for it, or set credentials_file to a file in its directory of secrets."
                ) from None
        try:
            if self._secrets is None:
                raise FileNotFoundError("the launcher has no directory of secrets")
            return service_account.Credentials.from_service_account_file(  # type: ignore[no-untyped-call]
                str(self._secrets / name), scopes=SCOPES
            )
        except (OSError, ValueError, KeyError, GoogleAuthError) as error:  # its text may quote the file
            raise NoCredentials(
                f"The file of credentials {name} cannot be used ({type(error).__name__}): put the key of a service account, as"
                " JSON, in the launcher's directory of secrets."
            ) from None

    async def _thread(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS_MAX):
                return await loop.run_in_executor(self._threads, call)
        except TimeoutError:
            raise ComputeEngineUnreachable(f"{self.address} does not answer within {2 * ANSWER_SECONDS_MAX:.0f} s") from None
        except GoogleAPICallError as error:
            raise _refusal(error) from None
        except RefreshError as error:
            if error.retryable:
                raise ComputeEngineUnreachable("the address that gives tokens does not answer") from None
            raise ComputeEngineRefusal(401, "", "") from None
        except (TransportError, requests.RequestException, OSError) as error:
            raise ComputeEngineUnreachable(f"{self.address} cannot be reached ({type(error).__name__})") from None
        except (ValueError, RuntimeError) as error:
            # What is no answer of Google's, such as a proxy's page; or the launcher ends.
            raise ComputeEngineUnreachable(f"what {self.address} answers cannot be read ({type(error).__name__})") from None


class _BoundedAdapter(HTTPAdapter):
    """Answers are read whole, as the client wants them, but not without end; none leads elsewhere."""

    def send(self, request: Any, *arguments: Any, **options: Any) -> Any:  # type: ignore[override]
        response = super().send(request, *arguments, **{**options, "stream": True})
        if response.is_redirect:  # Google's API has none: it is a proxy's, and the credentials are not for it
            response.close()
            raise requests.exceptions.TooManyRedirects("the answer leads elsewhere")
        ends_at, size, parts = time.monotonic() + ANSWER_SECONDS_MAX, 0, []
        for part in response.iter_content(1 << 16):
            size += len(part)
            if size > ANSWER_BYTES_MAX or time.monotonic() > ends_at:
                response.close()
                raise requests.exceptions.ContentDecodingError("the answer is too large, or comes too slowly")
            parts.append(part)
        response._content = b"".join(parts)
        return response


def _bound(session: Any) -> None:
    for scheme in ("https://", "http://"):
        session.mount(scheme, _BoundedAdapter(pool_maxsize=THREADS))


def _first_page(pager: Any) -> Any:
    """The answer itself: the pager's own further questions would have no bound."""
    return pager._response


def _machine(item: compute_v1.Instance) -> ComputeInstance:
    zone = item.zone.rpartition("/")[2]
    stopped = time_of(item.last_stop_timestamp) if item.last_stop_timestamp else None
    return ComputeInstance(item.name, zone, item.status, item.status_message, item.description, stopped)


def _failure(operation: compute_v1.Operation) -> ComputeEngineRefusal | None:
    """Failure of the operation; None if it did not fail."""
    errors = list(operation.error.errors)
    if not errors and not operation.http_error_status_code:
        return None
    code = errors[0].code if errors else ""
    words = "; ".join(item.message or item.code for item in errors) or operation.http_error_message
    return ComputeEngineRefusal(operation.http_error_status_code, code, words)


def _refusal(error: GoogleAPICallError) -> ComputeEngineRefusal:
    """The client puts the address of the request before Google's words; these stand alone in `errors`."""
    first = next((item for item in error.errors if isinstance(item, dict)), {})
    words = str(first.get("message") or str(error.message).partition(": ")[2] or error.message)
    return ComputeEngineRefusal(int(error.code or 0), str(first.get("reason") or error.reason or ""), words)


def _words(answer: requests.Response) -> str:
    try:
        return shown(str(answer.json()["error"]["message"]))
    except (ValueError, KeyError, TypeError):
        return ""


def open_door(connection: ComputeEngineConnection, secrets_directory: Path | None) -> ComputeEngineClient:
    """Nothing is asked yet."""
    return ComputeEngineClient(connection, secrets_directory)
