"""A Slurm of the tests' own on this machine: a controller and two nodes, as Debian packages them. Several may run at once."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support import litter, waiting
from tests.support.ports import own_port

ROOT = Path(__file__).parents[2]
NODES = ("n0", "n1")
START_SECONDS_MAX = 180.0
COMMAND_SECONDS_MAX = 120.0
POLL_SECONDS = 0.05
AGENT_MODULE = "tenuto.workers.agent"
FINAL = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
"""States in which a job stays, where it is not requeued."""
STATES = ("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t")  # else each machine once in each partition
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
JWT_PLUGINS = ("/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/aarch64-linux-gnu/slurm-wlm")
REST_ACCOUNT = "nobody"
"""Account of slurmrestd and its jobs: it serves neither root nor the account of the controller."""
REST_VERSIONS = "openapi/v0.0.37,openapi/v0.0.38"
"""Without those of slurmdbd, which is not there."""
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
{tokens}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={directory}/task-prolog
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
SelectType=select/cons_tres
ReturnToService=2
SlurmdTimeout=10
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
JobCompType=jobcomp/none
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=60
{more}
"""
PREEMPTION = """\
PreemptType=preempt/partition_prio
PreemptMode={mode}
PartitionName=low Nodes=ALL State=UP MaxTime=60 PriorityTier=1 GraceTime={grace}
PartitionName=high Nodes=ALL State=UP MaxTime=60 PriorityTier=10 PreemptMode=OFF
"""
"""Further lines, for a Slurm whose partition `high` takes machines from the jobs of `low`."""


def lack() -> str:
    """Packages of Debian that are missing; empty if there are all."""
    return "" if all(shutil.which(name, path=_path()) for name in PROGRAMS) else "There is no Slurm: make system-packages."


def rest_lack() -> str:
    """The same for its REST daemon with tokens."""
    there = shutil.which("slurmrestd", path=_path()) and any(Path(place, "auth_jwt.so").exists() for place in JWT_PLUGINS)
    return lack() or ("" if there else "There is no slurmrestd with JWT: make system-packages.")


def why_not() -> str:
    """A reason other than missing packages; empty if there is none."""
    return "" if os.geteuid() == 0 else "Only root may start Slurm's daemons for tests."


def ordinary_user() -> str:
    """An account without rights that can run the tests' Python; empty if that is in a directory for others only."""
    python = Path(sys.executable).resolve()
    places = [*python.parents, *Path(sys.prefix).parents]
    return "nobody" if all(place.stat().st_mode & stat.S_IXOTH for place in places) else ""


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"])


@dataclass
class Slurm:
    directory: Path
    environment: dict[str, str]
    daemons: dict[str, psutil.Popen] = field(default_factory=dict)

    def start(self, name: str, *command: str | Path) -> None:
        with (self.directory / f"{name}.out").open("wb") as output:
            self.daemons[name] = psutil.Popen(
                [*map(str, command)], stdout=output, stderr=output, env=self.environment, start_new_session=True
            )

    def run(self, *command: str | Path, **variables: str) -> str:
        done = subprocess.run(
            [*map(str, command)], env=self.environment | variables, capture_output=True, text=True,
            timeout=COMMAND_SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout.strip()

    def submit(self, *options: str, account: str = "", **variables: str) -> str:
        """An agent's job, as in the guide; its id. What the jobs print is in `printed`. `account`: who submits it."""
        given = (f"--output={self.directory}/jobs/%A_%a.out", *options)
        somebody = ("setpriv", f"--reuid={account}", "--regid=nogroup", "--clear-groups") if account else ()
        return self.run(*somebody, "sbatch", "--parsable", *given, ROOT / "deploy/slurm/agent.sh", **variables)

    def submit_step(self, name: str, *options: str, **variables: str) -> str:
        """A job without the guide's script, in which `srun` starts the agent: it has all that Slurm tells a task. Its id."""
        lines = (
            f'set -a; . "{self.directory}/agent.env"; . "{self.directory}/credentials/{name}-0.env"',
            f'TENUTO_AGENT_DIRECTORY="$TMPDIR/step-{name}" TENUTO_AGENT_LABELS=slurm_job=$SLURM_JOB_ID',
            f'exec srun "{sys.executable}" -m {AGENT_MODULE}',
        )
        given = (f"--job-name={name}", f"--output={self.directory}/jobs/%A.out", "--nodes=1", "--ntasks=1", *options)
        return self.run("sbatch", "--parsable", *given, "--wrap", "\n".join(lines), **variables)

    def rest(self, auth: str = "rest_auth/jwt") -> Path:
        """Socket of the REST daemon, which is started if need be. It runs as an ordinary account, whose jobs it starts."""
        place = self.directory / "rest"
        socket = place / auth.rpartition("/")[2]
        if not socket.exists():
            place.mkdir(exist_ok=True)
            shutil.chown(place, REST_ACCOUNT)
            # With the variable tokens are passed on to the controller.
            tokens = ("env", "SLURM_JWT=daemon") if auth == "rest_auth/jwt" else ("env",)
            somebody = ("setpriv", f"--reuid={REST_ACCOUNT}", "--regid=nogroup", "--clear-groups")
            self.start(
                f"slurmrestd-{socket.name}", *somebody, *tokens, "slurmrestd", "-s", REST_VERSIONS, "-a", auth, f"unix:{socket}"
            )
            _until(self, socket.exists)
        return socket

    def token(self) -> str:
        """As `scontrol` prints it, of the REST daemon's account."""
        return self.run("scontrol", "token", f"username={REST_ACCOUNT}", "lifespan=3600")

    def empty(self) -> None:
        """Ends all jobs."""
        for account in (str(os.geteuid()), REST_ACCOUNT):
            _until(self, lambda account=account: self.run("scancel", f"--user={account}") == "")  # type: ignore[misc]
        _until(self, lambda: self.run(*STATES).split() == ["idle"] * len(NODES))

    def printed(self) -> str:
        return "\n".join(
            f"{path.name}:\n{path.read_text(errors='replace')}" for path in sorted(self.directory.glob("jobs/*.out"))
        )

    def state(self, job: str) -> str:
        """State of a job, or of a task of an array (`12_0`), such as RUNNING."""
        said = self.run("scontrol", "--oneliner", "show", "job", job)
        return next(word.partition("=")[2] for word in said.split() if word.startswith("JobState="))

    def over(self, job: str) -> bool:
        return self.state(job) in FINAL

    def wait_completed(self, job: str) -> None:
        """Waits until the job has ended in order. Raises at once if it has ended in another way."""

        def otherwise() -> str:
            state = self.state(job)
            return f"job {job} is {state}:\n{self.printed()}" if state in FINAL and state != "COMPLETED" else ""

        waiting.until(lambda: self.state(job), lambda state: state == "COMPLETED", gone=otherwise)

    def agents(self) -> dict[str, psutil.Process]:
        """Agents of running jobs, by their job's id in full (a task of an array has one of its own)."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                own = process.environ()
                if own.get("TENUTO_SLURM_DIRECTORY") == str(self.directory) and process.cmdline()[-1:] == [AGENT_MODULE]:
                    found[own["TENUTO_AGENT_LABELS"].rpartition("slurm_job=")[2]] = process
        return found

    def node_of(self, agent: psutil.Process) -> str:
        job = agent.environ()["TENUTO_AGENT_LABELS"].rpartition("slurm_job=")[2]
        running = self.run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%A %N")
        return dict(line.split() for line in running.splitlines())[job]  # --jobs would also find others of its array

    def node_dies(self, agent: psutil.Process) -> None:
        """Kills the daemon of the agent's node and all that runs there at once, as a power failure does."""
        first = {self.daemons[self.node_of(agent)], agent, agent.parent()}
        everything: set[psutil.Process] = set()
        while new := {*first, *agent.children(recursive=True)} - everything:
            for process in new:
                with contextlib.suppress(psutil.Error):
                    process.suspend()  # else one would see another's end, or start one more
            everything |= new
        for process in everything:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def logs(self) -> str:
        return "".join(
            f"\n{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in sorted(self.directory.glob("*.log"))
        )

    def _has(self, process: psutil.Process) -> bool:
        own = process.environ()
        if str(self.directory) in (own.get("SLURM_CONF", "").rpartition("/")[0], own.get("TENUTO_SLURM_DIRECTORY")):
            return True
        if process.name() != "slurmstepd":  # which writes its title over its environment
            return False
        return any(Path(item.path).is_relative_to(self.directory) for item in process.open_files())

    def stop(self) -> None:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self.run("scancel", "--full", "--signal=KILL", "--state=RUNNING")
        for daemon in self.daemons.values():
            for process in [*_below([daemon.pid]), daemon]:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        for process in psutil.process_iter():  # a step's own process, and what it runs, are no children of the daemons
            with contextlib.suppress(psutil.Error):
                if self._has(process):
                    process.kill()
        psutil.wait_procs(list(self.daemons.values()), timeout=10)


def _below(pids: Sequence[int]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found += psutil.Process(pid).children(recursive=True)
    return found


def _task_prolog() -> str:
    """What it prints are variables of each job, which has none of the daemons'."""
    lines = (shlex.quote(f"export {name}={value}") for name, value in litter.handed_down().items())
    return "#!/bin/sh\n" + "".join(f"echo {line}\n" for line in lines)


@contextlib.contextmanager
def slurm(more: str = "") -> Iterator[Slurm]:
    """Running, with both nodes idle. `more`: lines of its configuration."""
    directory = Path(tempfile.mkdtemp(prefix="tenuto-slurm-"))  # short: munge's socket is in it
    host = os.uname().nodename.partition(".")[0]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={own_port()} CPUs=4 RealMemory=1000 State=UNKNOWN"
        for name in NODES
    )
    path = directory / "slurm.conf"
    (directory / "state").mkdir()
    tokens = "" if rest_lack() else f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={directory}/state/jwt.key"
    (directory / "state/jwt.key").write_bytes(os.urandom(32))
    (directory / "state/jwt.key").chmod(0o600)
    path.write_text(CONFIGURATION.format(host=host, port=own_port(), directory=directory, nodes=nodes, tokens=tokens, more=more))
    (directory / "task-prolog").write_text(_task_prolog())
    (directory / "task-prolog").chmod(0o755)
    (directory / "jobs").mkdir()
    directory.chmod(0o755)
    (directory / "jobs").chmod(0o1777)  # whoever submits a job writes what it prints
    munge = directory / "munge"
    munge.mkdir()
    munge.chmod(0o755)
    (munge / "key").write_bytes(os.urandom(128))
    (munge / "key").chmod(0o400)
    python = {"TENUTO_SLURM_PYTHON": sys.executable, "TENUTO_SLURM_DIRECTORY": str(directory)}
    found = Slurm(directory, {**os.environ, **python, "SLURM_CONF": str(path), "PATH": _path()})
    try:
        found.start(
            "munged", "munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        _until(found, lambda: (munge / "socket").exists())
        found.start("slurmctld", "slurmctld", "-D", "-f", path)
        for node in NODES:
            found.start(node, "slurmd", "-D", "-N", node, "-f", path)
        _until(found, lambda: found.run(*STATES).split() == ["idle"] * len(NODES))
        yield found
    finally:
        found.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _until(found: Slurm, holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        with contextlib.suppress(AssertionError):
            if holds():
                return
        assert time.monotonic() < deadline, f"Slurm does not start:{found.logs()}"
        time.sleep(POLL_SECONDS)
