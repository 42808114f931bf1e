"""Starts a cluster on this machine that outlives the process that starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from tenuto.embedded.options import Options
from tenuto.embedded.process import ServerError


def start_detached(
    options: Options,
    report: Callable[[str], None],
    *,
    with_parent: bool = False,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Returns the URL of its REST door when it is ready. `report` is told of each step. `with_parent`: the cluster stops when
    this process ends, however that happens, where the system can do that (Linux). `environment`: variables of the cluster; None:
    those of this process. Raises ServerError."""
    layout = options.layout
    layout.create()
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "tenuto.embedded.detached", "--data-dir", str(layout.root), "--progress-fd", str(writing)]
    if options.port is not None:
        command += ["--port", str(options.port)]
    if options.cpu_slots is not None:
        command += ["--cpu-slots", str(options.cpu_slots)]
    if options.agents != 1:
        command += ["--agents", str(options.agents)]
    if options.worker_user:
        command += ["--worker-user", options.worker_user]
    if options.listen:
        command += ["--listen", options.listen]
    if with_parent:
        command += ["--parent", str(os.getpid())]
    with layout.log("supervisor").open("ab") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[writing],
            env=environment,
            cwd=layout.root,
        )
    os.close(writing)
    with os.fdopen(reading) as progress:
        for line in progress:
            kind, _, text = line.rstrip("\n").partition(" ")
            if kind == "ready":
                return text
            if kind == "error":
                raise ServerError(text)
            report(text)
    raise ServerError(f"The supervisor ended before the cluster was ready; its log is {layout.log('supervisor')}.")
