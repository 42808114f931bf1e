"""Processes of a laptop cluster: their settings, and how they are found again."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import psutil

from tenuto.embedded.files import Layout
from tenuto.embedded.nats import Listen, NatsServer
from tenuto.embedded.port_claims import PortClaim
from tenuto.embedded.postgres import PostgresServer
from tenuto.embedded.process import LOOPBACK, REST_PORTS, ServerError, bracketed, choose_port, is_alive, port_is_free, wait_gone
from tenuto.kernel.bus_permissions import agent_user
from tenuto.kernel.bus_users import BadAgentName, BusUsers
from tenuto.kernel.private_files import write_private
from tenuto.kernel.process_environment import variable_of
from tenuto.kernel.settings import Settings, SettingsError

REST_PORT_DEFAULT = 8080
SERVICES = ("searcher", "scheduler", "launcher", "tracker", "gateway")
MARK = "TENUTO_CLUSTER_DIRECTORY"
"""Variable in the environment of each process of the cluster, inherited by workers; by it they are found if no supervisor knows
them any more."""
TERMINATE_SECONDS_MAX = 15.0
"""Longest wait for a process to end: an agent gives its workers eight seconds to save, and its last reports two more."""
AGENT_MODULE = "tenuto.workers.agent"
PARENT_MODULE = "tenuto.embedded.preload"
_PART_MODULES = ("tenuto.services.", "tenuto.kernel.", AGENT_MODULE)


def rest_port(layout: Layout, wanted: int | None) -> tuple[int, PortClaim]:
    """The wanted port, else the last one used, else 8080 or any free one. Raises ServerError if it is taken.

    The returned claim is to be held while the cluster is up, so that two clusters that start at the same moment do not both take
    the port.
    """
    kept: int | None = None
    with contextlib.suppress(OSError, ValueError):
        kept = int(layout.rest_port.read_text())
    port = wanted or kept or REST_PORT_DEFAULT
    claim = _claimed(port)
    if claim is None and (wanted or kept):
        raise ServerError(f"Port {port} of {LOOPBACK} is taken by another program: choose another with --port.")
    while claim is None:
        port = choose_port(REST_PORTS)
        claim = _claimed(port)
    if port != kept:
        write_private(layout.rest_port, f"{port}\n")
    return port, claim


def _claimed(port: int) -> PortClaim | None:
    claim = PortClaim(port)
    return claim if port_is_free(port) and claim.acquire() else None


def listening(layout: Layout, host: str) -> Listen | None:
    """Address and certificate with which the cluster listens beyond this machine; None if it does not. Raises ServerError."""
    if not host:
        return None
    try:
        anywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        anywhere = False
    if anywhere:
        raise ServerError(f"--listen is {host}, but must be the one address or name by which other machines reach this one.")
    from tenuto.kernel.certificates import kept_certificate  # its library takes a while, and most clusters need none

    try:
        return Listen(host, *kept_certificate(layout.tls, host))
    except (OSError, ValueError) as error:
        raise ServerError(f"The certificate for {host} cannot be made in {layout.tls}: {error}.") from error


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str]


class BusPasswords(NamedTuple):
    """Passwords of users of the bus, by name."""

    services: Mapping[str, str]
    agents: Mapping[str, str]


def bus_passwords(users: BusUsers, agents: int) -> BusPasswords:
    """Passwords of the services and agents. The first agent has this machine's name; the others, which stand for further
    machines, have a number appended. One that was revoked is not started. Raises ServerError."""
    name = os.environ.get("TENUTO_AGENT_ID") or os.uname().nodename
    names, revoked = [name, *(f"{name}-{number}" for number in range(2, agents + 1))], set(users.revoked())
    try:
        return BusPasswords(users.services(), users.add_agents([name for name in names if name not in revoked]))
    except BadAgentName as error:
        raise ServerError(f"{error} TENUTO_AGENT_ID sets it.") from error


def process_specs(
    layout: Layout,
    postgres: PostgresServer,
    nats: NatsServer,
    port: int,
    passwords: BusPasswords,
    *,
    cpu_slots: int | None,
    worker_user: str = "",
    worker_confined: bool = False,
    listen: Listen | None = None,
) -> list[ProcessSpec]:
    """Every process beside the two servers. Agents get no access to the database, and little to the bus."""
    base = common_environment(layout) | {"TENUTO_NATS_URL": nats.url, "TENUTO_SHARED_DIRECTORY": str(layout.shared)}
    base |= {"TENUTO_STORES_FILE": str(layout.stores)}
    if listen is not None:
        base["TENUTO_NATS_CA_FILE"] = str(listen.certificate)
    service = base | {
        "TENUTO_DATABASE_URL": postgres.url,
        "TENUTO_REST_HOST": LOOPBACK,
        "TENUTO_REST_PORT": str(port),
        "TENUTO_REST_TOKEN_FILE": str(layout.token),
        "TENUTO_SECRET_KEY_FILE": str(layout.secret_key),
    }
    if "TENUTO_ANCHOR_TARGETS" not in service:
        service["TENUTO_ANCHOR_TARGETS"] = layout.anchors.as_uri()
    service.setdefault("TENUTO_ANCHOR_KEY_FILE", str(layout.anchor_key))
    of = {"gateway": {"TENUTO_BUS_USERS_DIRECTORY": str(layout.bus_users)}}
    if "TENUTO_PROVISIONER_DIRECTORY" not in service:
        of["launcher"] = {"TENUTO_PROVISIONER_DIRECTORY": str(layout.provisioners)}
    if listen is not None:
        of["gateway"] |= {
            "TENUTO_REST_TLS_HOST": listen.host,
            "TENUTO_REST_CERT_FILE": str(listen.certificate),
            "TENUTO_REST_KEY_FILE": str(listen.key),
            "TENUTO_PUBLIC_URL": base.get("TENUTO_PUBLIC_URL") or f"https://{bracketed(listen.host)}:{port}",
        }
    agent = base | {"TENUTO_GATEWAY_URL": f"http://{LOOPBACK}:{port}"}
    if cpu_slots is not None:
        agent["TENUTO_CPU_SLOTS"] = str(cpu_slots)
    if worker_user:
        agent["TENUTO_WORKER_USER"] = worker_user
    if worker_confined:
        agent["TENUTO_WORKER_CONFINED"] = "1"
    listens = metrics_listens(os.environ.get("TENUTO_METRICS_LISTEN", ""))
    return [
        *(
            ProcessSpec(
                name,
                _python("tenuto.kernel.relay" if name == "relay" else f"tenuto.services.{name}"),
                service | of.get(name, {}) | _user(name, passwords.services[name]) | listens.get(name, {}),
            )
            for name in ("relay", *SERVICES)
        ),
        *(
            _agent(layout, agent | _user(agent_user(agent_id), password), agent_id, number)
            for number, (agent_id, password) in enumerate(passwords.agents.items(), start=1)
        ),
    ]


def common_environment(layout: Layout) -> dict[str, str]:
    """Variables that every process of the cluster has: those of the user, and the mark."""
    return {name: value for name, value in os.environ.items() if name not in _PER_PROCESS} | {MARK: str(layout.root)}


def is_forkable(spec: ProcessSpec) -> bool:
    """True for a process that the preloaded parent can become."""
    return len(spec.command) == 3 and spec.command[:2] == _python("")[:2] and spec.command[2].startswith(_PART_MODULES)


def metrics_listens(first: str) -> dict[str, dict[str, str]]:
    """Settings of each service: the relay listens at `first`, the others at the ports behind it. Raises ServerError."""
    if not first:
        return {}
    try:
        host, port = Settings(metrics_listen=first).metrics_address()
    except SettingsError as error:
        raise ServerError(str(error)) from None
    names = ("relay", *SERVICES)
    if not 0 < port <= 65_536 - len(names):
        raise ServerError(f"TENUTO_METRICS_LISTEN is {first}, but {len(names)} ports are needed, from its own on.")
    return {name: {"TENUTO_METRICS_LISTEN": f"{bracketed(host)}:{port + index}"} for index, name in enumerate(names)}


def _user(name: str, password: str) -> dict[str, str]:
    return {"TENUTO_NATS_USER": name, "TENUTO_NATS_PASSWORD": password}


def _agent(layout: Layout, environment: dict[str, str], agent_id: str, number: int) -> ProcessSpec:
    directory = layout.agent_of(number)
    own = {"TENUTO_AGENT_DIRECTORY": str(directory), "TENUTO_AGENT_ID": agent_id}
    return ProcessSpec(directory.name, _python(AGENT_MODULE), environment | own)


def _python(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module)


_PER_PROCESS = frozenset(
    f"TENUTO_{name}"
    for name in (
        *("DATABASE_URL", "DATABASE_OWNER_URL", "DATA_DIRECTORY", "AGENT_DIRECTORY", "SHARED_DIRECTORY"),
        *("NATS_URL", "NATS_USER", "NATS_PASSWORD", "NATS_PASSWORD_FILE"),
        *("REST_HOST", "REST_PORT", "REST_TOKEN_FILE", "SECRET_KEY_FILE", "STORES_FILE", "WORKER_USER", "WORKER_CONFINED"),
        *("GATEWAY_URL", "BUS_USERS_DIRECTORY", "NATS_PUBLIC_URL", "NATS_CA_FILE", "REST_TLS_HOST", "REST_CERT_FILE"),
        *("REST_KEY_FILE", "METRICS_LISTEN"),
    )
)
"""Settings that the cluster decides; all other TENUTO_ variables of the user are passed on."""


def marked_processes(layout: Layout) -> Iterator[psutil.Process]:
    """Every process of this cluster except the servers and the caller, the workers included."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if process.pid != os.getpid() and variable_of(process.pid, MARK) == str(layout.root):
                yield process


def is_part(process: psutil.Process) -> bool:
    """True for a process that the supervisor starts; false for a worker."""
    return _runs(process, (*_PART_MODULES, PARENT_MODULE))


def is_parent(process: psutil.Process) -> bool:
    """True for a preloaded parent, and for a fork that has not become a service yet."""
    return _runs(process, (PARENT_MODULE,))


def is_agent(process: psutil.Process) -> bool:
    return _runs(process, (AGENT_MODULE,))


def _runs(process: psutil.Process, modules: tuple[str, ...]) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    return "-m" in command and any(word.startswith(modules) for word in command)


def terminate(processes: list[psutil.Process], how: signal.Signals = signal.SIGTERM) -> None:
    """Sends the signal, then SIGKILL to processes that are still alive after TERMINATE_SECONDS_MAX."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(how)
    alive = wait_gone(processes, TERMINATE_SECONDS_MAX)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_gone(alive, TERMINATE_SECONDS_MAX)


def replace_leftovers(layout: Layout) -> None:
    """Ends the processes that an earlier supervisor left, except the servers and the workers. An agent that gets SIGHUP leaves
    its workers running; the next agent finds them."""
    left = _without_parents([process for process in marked_processes(layout) if is_part(process) and not _is_own_parent(process)])
    terminate([process for process in left if is_agent(process)], signal.SIGHUP)
    terminate([process for process in left if not is_agent(process)])


def _is_own_parent(process: psutil.Process) -> bool:
    """True for the preloaded parent that this process has started."""
    with contextlib.suppress(psutil.Error):
        return is_parent(process) and process.ppid() == os.getpid()
    return False


def _without_parents(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Ends preloaded parents, which hold nothing and may be stopped; returns the others."""
    terminate([process for process in processes if is_parent(process)], signal.SIGKILL)
    return [process for process in processes if is_alive(process)]


async def stop_everything(layout: Layout) -> int:
    """Stops all processes that a killed supervisor left; returns their number. The caller holds the lock."""
    left = list(marked_processes(layout))
    # The agent first, while the services can still take its workers' last reports.
    terminate([process for process in left if is_agent(process)])
    terminate([process for process in _without_parents(left) if not is_agent(process)])
    stopped = len(left)
    for server in (NatsServer(layout.nats), PostgresServer(layout.postgres)):
        if server.data_dir.exists() and server.adopt():
            await server.stop()
            stopped += 1
    return stopped
