"""EC2, asked through boto3 in threads: each question bounded in time, each refusal a ProvisionerError in EC2's words."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError, PartialCredentialsError
from botocore.parsers import ResponseParserError

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.aws.settings import Ec2Connection

Document = dict[str, Any]
T = TypeVar("T")
TOGETHER_MAX = 8
"""Most requests of one pool at once, each in a thread: EC2 limits each account, and others use it, too."""
CONNECT_SECONDS, READ_SECONDS = 5, 30
TRIES = 3
"""boto3's own, with pauses, where EC2 says that it is asked too often or has an error. RunInstances has a ClientToken, so a
repeated one starts nothing more."""
ANSWER_SECONDS_MAX = 55.0
"""Longest wait for one answer, with all tries: below the keeper's own bound of a look."""
PAGES_MAX = 20
WORDS_MAX = 300
_QUOTA = (
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "VolumeLimitExceeded",
    "SpotInstanceCountExceeded",
)
_AWAY = (
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "EC2ThrottledException", "InternalError",
    "InternalFailure", "InternalServerError", "Unavailable", "ServiceUnavailable", "ServerInternal", "SlowDown",
)  # fmt: skip
_CAPACITY = re.compile(r"Insufficient\w*(Capacity|Addresses\w*)\w*|InsufficientFreeAddressesInSubnet|SpotMaxPriceTooLow")
ELSEWHERE = ("Unsupported", "InvalidAvailabilityZone", "UnsupportedOperation")
"""Another zone may have it."""
# At this level boto3 logs requests, which have tokens.
for _name in ("botocore", "boto3", "urllib3"):
    logging.getLogger(_name).setLevel(max(logging.INFO, logging.getLogger(_name).level))


class Ec2Refusal(Exception):
    """An error response of EC2."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status

    @property
    def kind(self) -> Literal["capacity", "quota", "refused", "unreachable"]:
        if self.code in _QUOTA:
            return "quota"
        if _CAPACITY.fullmatch(self.code):
            return "capacity"
        if self.code in _AWAY or self.status >= 500:
            return "unreachable"
        return "refused"

    def error(self, doing: str) -> ProvisionerError:
        said = self.message.partition("Encoded authorization failure message")[0].strip().rstrip(".:")
        if said.startswith("<"):  # a page of whatever stands between
            said = f"its answer is a page with status {self.status}"
        return ProvisionerError(f"EC2 does not {doing}: {visible(said)[:WORDS_MAX]} ({visible(self.code)[:100]}).", self.kind)


class Ec2Unreachable(Exception):
    """EC2 did not answer; the request may have been carried out. `str(error)` says why."""

    def error(self, doing: str) -> ProvisionerError:
        return ProvisionerError(f"EC2 cannot be asked to {doing}: {self}.", "unreachable")


class Ec2Client:
    """Opened by `open_door`. Raises Ec2Refusal and Ec2Unreachable."""

    def __init__(self, session: boto3.session.Session, connection: Ec2Connection) -> None:
        self._session, self._connection = session, connection
        self._threads = ThreadPoolExecutor(TOGETHER_MAX, thread_name_prefix="ec2")
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()

    async def ask(self, method: str, *, service: str = "ec2", **parameters: Any) -> Document:
        return await self._in_thread(lambda: getattr(self._clients[service], method)(**parameters), method, service)

    async def pages(self, method: str, key: str, **parameters: Any) -> list[Document]:
        """All items under `key`."""
        found: list[Document] = []
        after: Document = {}
        for _ in range(PAGES_MAX):
            page = await self.ask(method, **parameters, **after)
            found += page.get(key) or []
            if not page.get("NextToken"):
                return found
            after = {"NextToken": page["NextToken"]}
        raise Ec2Unreachable(f"its answer has more than {PAGES_MAX} pages")

    @property
    def region(self) -> str:
        """Region of Amazon's own service; empty if another service that speaks its protocol is used."""
        return "" if self._connection.endpoint_url else self._connection.region

    def close(self) -> None:
        """Calls that are on their way end by their own bounds."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, call: Callable[[], T], method: str, service: str) -> T:
        def run() -> T:
            with self._making:  # a session makes one client at a time
                if service not in self._clients:
                    self._clients[service] = self._client(service)
            return call()

        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except TimeoutError:
            raise Ec2Unreachable(f"there is no answer within {ANSWER_SECONDS_MAX:.0f} s") from None
        except ClientError as error:
            said, status = error.response.get("Error") or {}, (error.response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
            raise Ec2Refusal(str(said.get("Code") or "?"), str(said.get("Message") or ""), int(status or 500)) from None
        except ParamValidationError:  # its text has the parameters
            raise Ec2Refusal("ParamValidation", f"{method} has a parameter that boto3 takes for wrong", 400) from None
        except (NoCredentialsError, PartialCredentialsError):
            raise Ec2Refusal("NoCredentials", "the launcher has no credentials for AWS", 401) from None
        except (BotoCoreError, ResponseParserError, OSError, ValueError) as error:
            # What a failed connection says is an address; what parsing an answer says may quote it.
            raise Ec2Unreachable(f"{self._address()} gave no answer that can be used ({type(error).__name__})") from None

    def _client(self, service: str) -> Any:
        config = Config(
            connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, max_pool_connections=TOGETHER_MAX,
            retries={"mode": "standard", "total_max_attempts": TRIES}, user_agent_extra="tenuto",
        )  # fmt: skip
        return self._session.client(
            service, region_name=self._connection.region, endpoint_url=self._connection.endpoint_url or None, config=config
        )

    def _address(self) -> str:
        return self._connection.endpoint_url or f"EC2 in {self._connection.region}"


@functools.cache
def known_regions() -> frozenset[str]:
    core = botocore.session.Session()
    return frozenset(name for kind in core.get_available_partitions() for name in core.get_available_regions("ec2", kind))


def open_door(connection: Ec2Connection, secrets_directory: Path | None) -> Ec2Client:
    """Raises ProvisionerError; nothing is asked yet."""
    if not connection.credentials_file:
        try:
            return Ec2Client(boto3.session.Session(region_name=connection.region), connection)
        except (BotoCoreError, OSError, ValueError) as error:
            why = type(error).__name__
            raise ProvisionerError(f"The launcher's own settings of AWS cannot be used ({why}): mend them.", "refused") from None
    file = secrets_directory / connection.credentials_file if secrets_directory is not None else None
    if file is None or not file.is_file():
        raise ProvisionerError(
            f"There is no file {connection.credentials_file} in the launcher's directory of secrets: put it there.", "refused"
        )
    profile = connection.profile or "default"
    core = botocore.session.Session(profile=profile)  # a profile that is named goes before variables of the environment
    core.set_config_variable("credentials_file", str(file))
    core.set_config_variable("config_file", "/dev/null")
    try:
        session = boto3.session.Session(botocore_session=core, region_name=connection.region)
        found = session.get_credentials()
    except (BotoCoreError, OSError, ValueError) as error:
        # The text may quote the file, which has keys.
        found, why = None, f" ({type(error).__name__})"
    else:
        why = ""
    if found is None:
        raise ProvisionerError(
            f"The file {connection.credentials_file} has no credentials for profile {profile}{why}:"
            " write it as ~/.aws/credentials.",
            "refused",
        )
    return Ec2Client(session, connection)
