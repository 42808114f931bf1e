"""How much of the platform a command reads before it knows which one it is."""

from __future__ import annotations

import subprocess
import sys

DEAR = ("pydantic", "httpx", "numpy", "matplotlib", "rich", "tenuto.schemas.events", "tenuto.services", "tenuto.workers")
"""Packages that cost from a tenth of a second to some seconds."""


def test_a_command_reads_nothing_dear_before_it_is_chosen() -> None:
    """Every command, `--help` and every completion of the shell waits for what is read here."""
    program = "import sys, tenuto.cli.main; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "tenuto.cli.jobs" in modules
    assert [name for name in modules if name.startswith(DEAR)] == []
