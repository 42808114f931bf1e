"""The API server, asked through kubernetes_asyncio: each question bounded in time and size, each refusal a ProvisionerError."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import aiohttp
import kubernetes_asyncio.client as client
import kubernetes_asyncio.config as config
import yaml

from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.kubernetes.pods import message_of
from tenuto.services.launcher.adapters.provisioners.kubernetes.settings import KubernetesConnection

Document = dict[str, Any]
ANSWER_SECONDS_MAX = 20.0
"""Longest wait for one answer: an API server answers in milliseconds, and gives up itself after 60 s."""
ANSWER_BYTES_MAX = 64 << 20
"""Largest answer that is read: a page of 500 pods has about 3 MB."""
EVENT_BYTES_MAX = 8 << 20
"""Largest event of a watch: an object has at most 1.5 MB."""
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_QUOTA = ("exceeded quota", "status unknown for quota")
"""The latter is said of a quota that is new: its controller has not counted yet."""
_REFUSED_OTHERWISE = "Kubernetes gives no reason"


class KubernetesRefusal(Exception):
    """An error response of the API server."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message

    def kind(self) -> Literal["capacity", "quota", "refused", "unreachable"]:
        """Another 409 than AlreadyExists is one of two writers at once, such as of a quota: nothing was done, and it may be asked
        again."""
        if self.status == 403 and any(words in self.message for words in _QUOTA):
            return "quota"
        if self.status in (408, 409, 429) or self.status >= 500:
            return "unreachable"
        return "refused"

    def error(self, doing: str) -> ProvisionerError:
        said = self.message or f"{_REFUSED_OTHERWISE} (status {self.status})"
        if self.status == 401:
            said = "the launcher's credentials are not valid there (status 401)"
        return ProvisionerError(f"Kubernetes does not {doing}: {said.rstrip('.')}.", self.kind())


class KubernetesUnreachable(Exception):
    """The API server did not answer; the request may have been carried out. `str(error)` says why."""

    def error(self, doing: str) -> ProvisionerError:
        return ProvisionerError(f"Kubernetes cannot be asked to {doing}: {self}.", "unreachable")


class KubernetesClient:
    """Opened by `open_door`. Its methods raise KubernetesRefusal and KubernetesUnreachable."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._api, self.namespace = api, namespace
        self._core = client.CoreV1Api(api)

    @property
    def address(self) -> str:
        return str(self._api.configuration.host)

    async def close(self) -> None:
        await self._api.close()

    async def create_pod(self, body: Document, *, dry_run: bool = False) -> Document:
        options = {"dry_run": "All"} if dry_run else {}
        return await self._ask(self._core.create_namespaced_pod, self.namespace, body, **options)

    async def read_pod(self, name: str) -> Document:
        return await self._ask(self._core.read_namespaced_pod, name, self.namespace)

    async def list_pods(self, selector: str, limit: int, continue_from: str) -> Document:
        options = {"_continue": continue_from} if continue_from else {}
        return await self._ask(self._core.list_namespaced_pod, self.namespace, label_selector=selector, limit=limit, **options)

    async def watch_pods(self, selector: str, version: str, seconds: int) -> AsyncGenerator[Document, None]:
        """Events after that version, until the server ends the watch."""
        ask: Callable[..., Awaitable[Any]] = self._core.list_namespaced_pod
        # The library's timeout and not asyncio's, which would also count what is done between two events.
        patience = aiohttp.ClientTimeout(total=seconds + ANSWER_SECONDS_MAX, sock_connect=ANSWER_SECONDS_MAX)
        options = {"watch": True, "allow_watch_bookmarks": True, "resource_version": version, "timeout_seconds": seconds}
        with self._reaching():
            response: aiohttp.ClientResponse = await ask(
                self.namespace, label_selector=selector, _preload_content=False, _request_timeout=patience, **options
            )
            async with response:
                if response.status != 200:
                    raise KubernetesRefusal(response.status, *message_of(await _read(response)))
                async for event in _events(response):
                    yield event

    async def delete_pod(self, namespace: str, name: str) -> None:
        await self._ask(self._core.delete_namespaced_pod, name, namespace)

    async def create_secret(self, body: Document) -> None:
        await self._ask(self._core.create_namespaced_secret, self.namespace, body)

    async def pod_log(self, namespace: str, name: str, lines_max: int, bytes_max: int) -> bytes:
        ask = self._core.read_namespaced_pod_log
        return await self._bytes(ask, name, namespace, tail_lines=lines_max, limit_bytes=bytes_max)

    async def version(self) -> Document:
        return await self._ask(client.VersionApi(self._api).get_code)

    async def may(self, verb: str, group: str, resource: str) -> bool:
        name, _, part = resource.partition("/")
        attributes = {"namespace": self.namespace, "verb": verb, "group": group, "resource": name, "subresource": part}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        answer = await self._ask(client.AuthorizationV1Api(self._api).create_self_subject_access_review, body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def read_namespace(self) -> Document:
        return await self._ask(self._core.read_namespace, self.namespace)

    async def read_service_account(self, name: str) -> Document:
        return await self._ask(self._core.read_namespaced_service_account, name, self.namespace)

    async def read_claim(self, name: str) -> Document:
        return await self._ask(self._core.read_namespaced_persistent_volume_claim, name, self.namespace)

    async def read_priority_class(self, name: str) -> Document:
        return await self._ask(client.SchedulingV1Api(self._api).read_priority_class, name)

    async def list_quotas(self) -> Document:
        return await self._ask(self._core.list_namespaced_resource_quota, self.namespace)

    async def _ask(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Document:
        body = await self._bytes(method, *arguments, **options)
        try:
            found = json.loads(body)
        except ValueError:
            raise KubernetesUnreachable(f"what {self.address} answers is no JSON") from None
        if not isinstance(found, dict):
            raise KubernetesUnreachable(f"what {self.address} answers is no document of Kubernetes")
        return found

    async def _bytes(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> bytes:
        """The library's own classes for answers are left out: they take longer than the request."""
        with self._reaching():
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                response: aiohttp.ClientResponse = await method(*arguments, _preload_content=False, **options)
                async with response:
                    body = await _read(response)
        if len(body) > ANSWER_BYTES_MAX:
            raise KubernetesUnreachable(f"the answer of {self.address} is larger than {ANSWER_BYTES_MAX >> 20} MiB")
        if not 200 <= response.status < 300:
            raise KubernetesRefusal(response.status, *message_of(body))
        return body

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Errors of the way to the server, as KubernetesRefusal and KubernetesUnreachable."""
        try:
            yield
        except TimeoutError:
            raise KubernetesUnreachable(f"{self.address} does not answer within {ANSWER_SECONDS_MAX:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise KubernetesUnreachable(f"{self.address} cannot be reached ({type(error).__name__})") from error
        except client.ApiException as error:  # of a plugin that gives credentials
            raise KubernetesRefusal(error.status or 500, "", "") from None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Body of the response, cut off as soon as it exceeds the limit."""
    parts, size = [], 0
    async for part in response.content.iter_chunked(1 << 16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            break
    return b"".join(parts)


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[Document, None]:
    """Documents, one in each line. Raises KubernetesUnreachable."""
    rest = b""
    async for part in response.content.iter_any():
        *whole, rest = (rest + part).split(b"\n")
        if len(rest) > EVENT_BYTES_MAX:
            raise KubernetesUnreachable(f"an event of a watch is larger than {EVENT_BYTES_MAX >> 20} MiB")
        for line in whole:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise KubernetesUnreachable("an event of a watch is no document of Kubernetes")
            yield event


async def open_door(connection: KubernetesConnection, secrets_directory: Path | None) -> KubernetesClient:
    """Raises ProvisionerError; nothing is asked yet."""
    configuration = client.Configuration()
    try:
        namespace = await _configure(configuration, connection, secrets_directory)
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        # The text may quote the file, which has credentials.
        what = f"The kubeconfig {connection.kubeconfig}" if connection.kubeconfig else "The service account of the launcher's pod"
        remedy = (
            "put it in the launcher's directory of secrets"
            if connection.kubeconfig
            else "run the launcher in Kubernetes, or set kubeconfig"
        )
        raise ProvisionerError(f"{what} cannot be used ({type(error).__name__}): {remedy}.", "refused") from None
    configuration.client_side_validation = False
    return KubernetesClient(client.ApiClient(configuration), connection.namespace or namespace or "default")


async def _configure(
    configuration: client.Configuration, connection: KubernetesConnection, secrets_directory: Path | None
) -> str:
    """Namespace that the credentials name; empty if they name none."""
    if not connection.kubeconfig:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else ""
    if secrets_directory is None:
        raise FileNotFoundError("the launcher has no directory of secrets")
    loader = await config.load_kube_config(
        config_file=str(secrets_directory / connection.kubeconfig),
        context=connection.context or None,
        client_configuration=configuration,
        persist_config=False,
    )
    context = (loader.current_context or {}).get("context") or {}
    return str(context.get("namespace") or "")
