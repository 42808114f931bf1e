"""Runs the laptop cluster: starts its processes, restarts those that end, stops all of them. Holds no data of its own.

Killing the supervisor stops nothing: its processes go on. The next `tenuto up` adopts the servers and replaces the services.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from tenuto.embedded.cluster import (
    ProcessSpec,
    bus_passwords,
    is_part,
    listening,
    marked_processes,
    process_specs,
    replace_leftovers,
    rest_port,
    terminate,
)
from tenuto.embedded.files import Lock, ProcessState, RunningCluster, read_state
from tenuto.embedded.nats import NatsServer
from tenuto.embedded.options import Options
from tenuto.embedded.port_claims import PortClaim
from tenuto.embedded.postgres import PostgresServer
from tenuto.embedded.preloaded_parent import END_UNSEEN
from tenuto.embedded.process import LOG_BYTES_MAX, LOOPBACK, ServerError, bracketed, explain
from tenuto.embedded.starting import Child, ProcessStarter
from tenuto.embedded.worker_account import WorkerRights, separate_workers, tell_of_rights
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.clock import Clock, SystemClock
from tenuto.kernel.exit_codes import EXIT_REVOKED, EXIT_SETTINGS
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task

RESTART_SECONDS_FIRST = 0.1
"""Wait before the first restart: a killed process is back at once. The wait doubles with each further end in a row, so that a
broken process costs little."""
RESTART_SECONDS_MAX = 10.0
STABLE_SECONDS = 20.0
"""Run time after which a process has recovered: its next end counts as the first one."""
ENDS_BEFORE_READY_MAX = 5
"""Ends of one process before the cluster is ready, after which `up` fails and says why: it will not recover by itself."""
READY_SECONDS_MAX = 90.0
"""Longest first start: imports of seven Python processes on one core of a slow machine."""
STOP_SECONDS_MAX = 15.0
"""Longest wait for a process to stop: an agent gives its workers eight seconds to save, and its last reports two more."""
SERVER_POLL_SECONDS = 0.1
READY_POLL_SECONDS = 0.1
ANSWER_SECONDS_MAX = 10.0
"""Longest wait for the gateway's first answer: longer than it waits for the services on which it reports."""
LOG_CHECK_SECONDS = 30.0

Report = Callable[[str], None]


class AlreadyUp(ServerError):
    pass


class ClusterSupervisor:
    def __init__(self, options: Options, clock: Clock, report: Report, rights: WorkerRights) -> None:
        self._options, self._rights = options, rights
        self._layout = options.layout
        self._clock = clock
        self._report = report
        self._postgres = PostgresServer(self._layout.postgres)
        self._users = BusUsers(self._layout.bus_users)
        self._listen = listening(self._layout, options.listen)
        self._nats = NatsServer(self._layout.nats, users=self._users, listen=self._listen)
        self._state = RunningCluster(os.getpid(), "", str(self._layout.token), clock.now_us())
        self._starter = ProcessStarter(self._layout, clock, report, preload=bool(Settings.from_environment().preload))
        self._children: dict[str, Child] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._port_claim: PortClaim | None = None
        self._servers: asyncio.Future[tuple[BaseException | None, BaseException | None]] | None = None

    async def start(self) -> str:
        """Starts the cluster; returns its URL when the REST door answers. Raises ServerError; `stop` must follow then."""
        layout = self._layout
        self._starter.begin()
        await asyncio.to_thread(replace_leftovers, layout)
        port, self._port_claim = rest_port(layout, self._options.port)
        self._state.url = f"http://{LOOPBACK}:{port}"
        self._write()
        passwords = bus_passwords(self._users, self._options.agents)
        servers = asyncio.gather(self._postgres.start(), self._nats.start(), return_exceptions=True)
        self._servers = servers
        # Shielded: a start that is interrupted half-way would leave a server without a supervisor.
        for failure in await asyncio.shield(servers):
            if failure is not None:
                raise failure
        self._report(f"postgres: port {self._postgres.port}; nats: port {self._nats.port}")
        self._nats.reload()  # an adopted server does not know new users
        await self._migrate()
        self._keep(self._keep_server("postgres", self._postgres))
        self._keep(self._keep_server("nats", self._nats))
        for spec in process_specs(
            layout,
            self._postgres,
            self._nats,
            port,
            passwords,
            cpu_slots=self._options.cpu_slots,
            worker_user=self._rights.user,
            worker_confined=self._rights.confined,
            listen=self._listen,
        ):
            self._keep(self._keep_process(spec))
        self._keep(self._bound_logs())
        await self._wait_ready(port)
        if self._listen is not None:  # the address that is shown at the end is this machine's own alone
            self._report(f"Other machines reach it at https://{bracketed(self._listen.host)}:{port}.")
        self._state.ready = True
        self._write()
        return self._state.url

    async def stop(self) -> None:
        """Stops agent and workers first, then the services, then the bus, the database last."""
        await asyncio.gather(*map(stop_task, self._tasks))
        await self._end([name for name in self._children if name.startswith("agent")])
        await asyncio.to_thread(self._terminate_marked, lambda process: not is_part(process))
        await self._end([name for name in self._children if not name.startswith("agent")])
        await self._starter.stop()
        await asyncio.to_thread(self._terminate_marked, lambda _: True)
        if self._servers is not None:
            await self._servers
        await self._nats.stop()
        await self._postgres.stop()
        if self._port_claim is not None:
            self._port_claim.release()
        self._state.ready = False
        for state in self._state.processes.values():
            state.state, state.pid = "stopped", None
        self._write()

    def _terminate_marked(self, which: Callable[[psutil.Process], bool]) -> None:
        terminate([process for process in marked_processes(self._layout) if which(process)])

    async def _migrate(self) -> None:
        from tenuto.kernel.migrations import MigrationError, migrate

        try:
            await migrate(self._postgres.owner_url)
        except MigrationError as error:
            raise ServerError(f"The database of {self._layout.root} cannot be used: {error}") from error

    def _keep(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))  # type: ignore[arg-type]

    async def _keep_process(self, spec: ProcessSpec) -> None:
        state = self._state.processes.setdefault(spec.name, ProcessState())
        ends = 0
        while True:
            started = self._clock.monotonic()
            child = await self._starter.start(spec)
            self._children[spec.name] = child
            self._note(state, pid=child.pid)
            code = await child.wait()
            ends = 1 if self._clock.monotonic() - started > STABLE_SECONDS else ends + 1
            if code == EXIT_REVOKED:
                state.pid, state.state, state.message = None, "stopped", _last_line(self._layout.log(spec.name))
                self._report(f"{spec.name} was revoked and is not started again")
                self._write()
                return
            why = _reason(code, self._layout.log(spec.name))
            # A wrong setting stays wrong: before the cluster is ready, another attempt only delays the message.
            await self._pause(
                spec.name, state, ENDS_BEFORE_READY_MAX if code == EXIT_SETTINGS and not self._state.ready else ends, why
            )

    async def _keep_server(self, name: str, server: PostgresServer | NatsServer) -> None:
        state = self._state.processes.setdefault(name, ProcessState())
        ends = 0
        while True:
            started = self._clock.monotonic()
            self._note(state, pid=server.pid)
            lost = False
            while server.is_running() and not lost:  # polled: an adopted process is no child of this one
                await asyncio.sleep(SERVER_POLL_SECONDS)
                lost = isinstance(server, NatsServer) and server.store_lost()
            ends = 1 if self._clock.monotonic() - started > STABLE_SECONDS else ends
            if lost and isinstance(server, NatsServer):
                why = (
                    f"its store in {server.data_dir} was removed while it ran; a fresh one is filled from the log and the agents"
                )
                await server.kill()
                await server.wipe()
            else:
                why = server.process.last_words()
            while True:
                ends += 1
                await self._pause(name, state, ends, why)
                try:
                    await server.start()
                    break
                except (ServerError, OSError) as error:
                    why = str(error)

    async def _pause(self, name: str, state: ProcessState, ends: int, why: str) -> None:
        wait_seconds = min(RESTART_SECONDS_MAX, RESTART_SECONDS_FIRST * 2 ** min(ends - 1, 30))
        self._report(f"{name} ended ({why}); it starts again in {wait_seconds:.1f} s")
        state.pid, state.state, state.message = None, "restarting", why
        state.restarts += 1
        self._write()
        if not self._state.ready and ends >= ENDS_BEFORE_READY_MAX and not self._failed.done():
            log = self._layout.log(name)
            self._failed.set_exception(ServerError(f"{name} does not start: {why}" + (f" (log: {log})" if log.exists() else "")))
        await asyncio.sleep(wait_seconds)

    def _note(self, state: ProcessState, *, pid: int | None) -> None:
        state.pid, state.state, state.started_us = pid, "running", self._clock.now_us()
        self._write()

    def _write(self) -> None:
        # A full disk must not end the supervisor: its processes matter more than this file.
        try:
            self._state.write(self._layout)
        except OSError as error:
            self._report(f"cannot write {self._layout.state}: {error.strerror}")

    async def _wait_ready(self, port: int) -> None:
        deadline = self._clock.monotonic() + READY_SECONDS_MAX
        while not await asyncio.to_thread(_answers, port, self._layout.token):
            if self._failed.done():
                break
            if self._clock.monotonic() > deadline:
                words = _last_line(self._layout.log("gateway"))
                raise ServerError(
                    f"The gateway does not answer after {READY_SECONDS_MAX:.0f} s: {words} (log: {self._layout.log('gateway')})"
                )
            await asyncio.wait([self._failed], timeout=READY_POLL_SECONDS)
        if self._failed.done():
            self._failed.result()

    async def _end(self, names: list[str]) -> None:
        children = [self._children[name] for name in names if self._children[name].returncode is None]
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        waits = [asyncio.ensure_future(child.wait()) for child in children]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=STOP_SECONDS_MAX)
        for child in children if late else ():
            if child.returncode is None:
                self._report(f"process {child.pid} did not stop in {STOP_SECONDS_MAX:.0f} s and is killed")
                child.kill()
        await asyncio.gather(*waits)

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_SECONDS)
            for log in (self._layout.root / "logs").glob("*.log"):
                with contextlib.suppress(OSError):
                    if log.stat().st_size > LOG_BYTES_MAX:
                        # Copied and emptied, not renamed: the process keeps writing to the same file (in append mode).
                        await asyncio.to_thread(shutil.copyfile, log, log.with_suffix(".log.1"))
                        os.truncate(log, 0)


def _answers(port: int, token_file: Path) -> bool:
    try:
        token = token_file.read_text().strip()
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_SECONDS_MAX)
        try:
            connection.request("GET", "/api/v1/status", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status == 200
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


def _reason(code: int, log: Path) -> str:
    if code == END_UNSEEN:
        return "a signal, which is unknown because the preloaded parent had ended before"
    return f"signal {-code}" if code < 0 else f"exit code {code}: {_last_line(log)}"


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError, IndexError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()][-1]
    return "it wrote no log"


async def supervise(options: Options, report: Report, ready: Callable[[str], None]) -> None:
    """Runs until SIGINT or SIGTERM. Raises AlreadyUp, or ServerError if the cluster cannot start (everything is stopped then)."""
    layout = options.layout
    layout.create()
    lock = Lock(layout.lock)
    try:
        if not lock.acquire():
            state = read_state(layout)
            where = state.url if state else "an unknown address"
            raise AlreadyUp(f"The cluster in {layout.root} is already up at {where}; `tenuto down` stops it.")
        rights = await asyncio.to_thread(separate_workers, layout, options.worker_user, options.agents)
    except OSError as error:
        raise explain(error, layout.root) from error
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    supervisor = ClusterSupervisor(options, SystemClock(), report, rights)
    starting = asyncio.ensure_future(supervisor.start())
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            url = starting.result()
            tell_of_rights(layout, rights, report)
            ready(url)
            await stopped
        report("stopping")
    except OSError as error:
        raise explain(error, layout.root) from error
    finally:
        starting.cancel()
        stopped.cancel()
        await asyncio.gather(starting, stopped, return_exceptions=True)
        await supervisor.stop()
        lock.release()
