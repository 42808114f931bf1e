"""Settings of agents that people submit as jobs to the tests' Slurm, for a cluster of real processes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import psutil

from tests.support.live_cluster import LiveCluster
from tests.support.slurm import Slurm

OWN = ("TENUTO_AGENT_ID", "TENUTO_AGENT_DIRECTORY", "TENUTO_NATS_USER", "TENUTO_NATS_PASSWORD", "TENUTO_NATS_PASSWORD_FILE")
"""Settings of the cluster's own agent that others do not share."""


def write_settings(cluster: LiveCluster, slurm: Slurm, agents: Sequence[str]) -> None:
    """As docs/slurm.md has them: one file for all nodes, and credentials for each task of an array."""
    known = psutil.Process(cluster.pid("agent")).environ()
    given = {name: value for name, value in known.items() if name.startswith("TENUTO_") and name not in OWN}
    own = slurm.directory / "own"  # what a cluster before this one has left in /tmp is another's
    own.mkdir()
    own.chmod(0o1777)
    given |= {"TENUTO_POOL": "slurm", "TENUTO_CPU_SLOTS": "1", "TMPDIR": str(own)}
    (slurm.directory / "agent.env").write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items()))
    (slurm.directory / "credentials").mkdir()
    for name in agents:
        cluster.cli("agent", "credentials", name, "--output", slurm.directory / f"credentials/{name}.env")
