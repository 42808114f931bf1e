"""Options of `tenuto up`."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.embedded.files import Layout


@dataclass(frozen=True)
class Options:
    layout: Layout
    port: int | None = None
    cpu_slots: int | None = None
    agents: int = 1
    worker_user: str = ""
    """Account that workers run as. Empty: the cluster's own."""
    listen: str = ""
    """Address of this machine at which REST door and bus listen with TLS, so that others can join. Empty: this machine only."""
