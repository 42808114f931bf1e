"""The zygote: a process that has imported the modules of every training process, and forks one for each run. `import torch` costs
seconds, a fork some milliseconds. The agent starts it; no user's code is ever loaded here.

The agent sends one byte with a socket for each run, also ahead of need. The fork that gets it replaces the leader
of a cold worker (leader.py): it leads a session of its own, forks the worker, and both stand by (run_leader.py). Once it gets a
job, it sends its process id, waits for its go, writes the worker's exit code to a file, ends what the worker left behind
(orphans.py), and reports that, and whether there was nothing. If the agent's socket closes, before the go or here, the agent is
gone or does not need it: then nothing more is started.

In a container (agent/runtimes/docker/boot.py) all of this is alike, but for four things. A run's environment comes on top of the
image's. Nothing marks its processes: the container does. A pipe that the leaders hold says when the last of them is gone, at
which the container ends. And the leader removes what the run has left where all runs of the container may write.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import random
import signal
import socket
import sys
from typing import NoReturn

from tenuto.kernel import plugins
from tenuto.workers.harness import frameworks, run_leader
from tenuto.workers.harness.fork_orders import ForkOrder, begin_run, read_line, take_order
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE
from tenuto.workers.harness.kept_worker import KeptWorker
from tenuto.workers.harness.rehearsal import rehearse, threads_ended
from tenuto.workers.harness.run_leader import lead
from tenuto.workers.launch.memory_protection import become_private
from tenuto.workers.launch.token import hand_down_token
from tenuto.workers.record.environment import remember_packages

ALIVE_VARIABLE = "TENUTO_ALIVE_DESCRIPTOR"
"""Variable with the descriptor of a pipe that this process and the leaders of runs hold, if there is one."""
KEPT_SECONDS_VARIABLE = "TENUTO_KEPT_SECONDS_MAX"
"""Variable with another limit than run_leader.KEPT_SECONDS_MAX. An agent sets none: it is for tests on a busy machine."""
PRELOADED_IF_THERE = ("grpc._channel", "grpc._simple_stubs", "grpc.experimental", "numpy.ctypeslib")
"""Modules that these packages import when they are first used: by the first channel or batch. They take tens of milliseconds;
other versions may have other names."""

_ENVIRONMENT: dict[str, str] = {}
"""Variables that this process was started with: imports add some."""


def main() -> NoReturn:
    become_private()
    channel = socket.socket(fileno=int(sys.argv[1]))
    alive = int(os.environ.pop(ALIVE_VARIABLE, "-1"))
    if alive >= 0:
        os.set_inheritable(alive, False)
    if seconds := os.environ.pop(KEPT_SECONDS_VARIABLE, ""):
        run_leader.KEPT_SECONDS_MAX = float(seconds)
    gc.disable()  # what imports make stays: to look through it again and again takes a tenth of their time
    modules = frameworks.preloaded(os.environ)  # reads what is installed, so that no run has to
    os.environ.pop(FRAMEWORK_VARIABLE, None)
    _ENVIRONMENT.update(os.environ)
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    further = (name for framework in frameworks.imported() for name in framework.preloads_if_there) if modules else ()
    for name in (*PRELOADED_IF_THERE, *further):
        if name.partition(".")[0] in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    remember_packages()
    for group in plugins.GROUPS:
        plugins.declared(group)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended runs leave the process table by themselves
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # a collection in a fork would touch, and so copy, every object of the modules
    channel.sendall(b"r")
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not data:
            os._exit(0)
        for descriptor in descriptors:
            if os.fork() == 0:
                # The fork must not hold the agent's channel open, nor read the next job from it.
                channel.close()
                lead(socket.socket(fileno=descriptor), alive, lambda link: _work(_stand_by(link), link))
            os.close(descriptor)


def _stand_by(link: socket.socket) -> ForkOrder:
    """Runs the second fork, the worker: waits for its job, and shows its mark. Leaves with its leader."""
    rehearse(link)
    line = read_line(link)
    if not line:
        os._exit(0)
    return take_order(line, link)


def _wait_go(link: socket.socket) -> None:
    if not link.recv(1):
        os._exit(0)
    link.close()


def _work(job: ForkOrder, link: socket.socket) -> NoReturn:
    """Continues as if `python -m tenuto.workers.harness` had been started, except that no user's code is loaded before its go:
    until then it reports to the agent."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    begin_run(job, _ENVIRONMENT)
    if command := job.get("command"):
        _wait_go(link)
        with hand_down_token(os.environ) as (variables, descriptors):
            for descriptor in descriptors:
                os.set_inheritable(descriptor, True)
            os.execvpe(command[0], command, variables)
    _fresh_randomness()
    from tenuto.workers.harness.main import main as work

    if job.get("gang"):
        from tenuto.workers.launch.supervisor import main as supervise

        def rank() -> NoReturn:
            _fresh_randomness()
            work()

        _wait_go(link)
        supervise(rank if threads_ended() else None)
    if job.get("keeps"):
        kept = KeptWorker(link, _ENVIRONMENT, _fresh_randomness)
        work(kept.wait_go, kept)
    work(lambda: _wait_go(link))


def _fresh_randomness() -> None:
    """Seeds the generators anew: otherwise all forks would begin with the same state, whereas started processes begin with
    random ones."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    for framework in frameworks.imported():
        framework.reseed()


if __name__ == "__main__":
    main()
